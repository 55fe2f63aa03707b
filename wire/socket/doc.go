// Package socket makes unix sockets that only their owner reaches, and lets in nobody else.
//
// Such a socket lies in a directory that only its owner enters, has a mode that keeps others out,
// and each connection is held against what the kernel says about the process on the other end.
package socket
