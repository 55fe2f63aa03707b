package bus

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/sandbox/descriptor"
)

// A conn is one end of a relayed connection. It carries bytes, and the descriptors that come with
// them (unix(7), SCM_RIGHTS): the portals hand out files.
type conn struct {
	file *os.File
	raw  syscall.RawConn
}

const (
	bufferSize = 16 << 10 // bytes that are under way in one direction of one connection
	maxRights  = 253      // SCM_MAX_FD: the kernel passes no more at once
	linger     = 20 * time.Millisecond
)

var rightsSpace = unix.CmsgSpace(maxRights * 4)

// newConn takes a connected socket over.
func newConn(d descriptor.File) (conn, error) {
	if err := unix.SetNonblock(int(d), true); err != nil {
		d.Close()
		return conn{}, err
	}
	file := os.NewFile(uintptr(d), "bus")
	raw, err := file.SyscallConn()
	return conn{file, raw}, err
}

func (c conn) close() { c.file.Close() }

// relay carries everything both ways until the server has ended the connection, which it does when
// the client has. A client may say something and be gone at once: what it said still goes to the
// server, and the server's answers to nobody. xdg-dbus-proxy itself forgets what it has not passed
// on yet when its client goes, so it is told a little later.
//
// What goes to and comes from a filtered bus is judged by a notifier; from an open one, nil,
// everything goes.
func relay(client, server conn, n *notifier, held *heldRights) {
	said, ok := handshake(client, server)
	if !ok {
		return
	}
	var up, down sender = &verbatim{dst: server}, &verbatim{dst: client}
	if n != nil {
		up, down = &judged{dst: server, held: held, judge: n.said}, &judged{dst: client, held: &heldRights{}, judge: n.heard}
	}
	var work sync.WaitGroup
	work.Go(func() {
		var spoken time.Time
		pump(up, client, said, &spoken)
		time.Sleep(time.Until(spoken.Add(linger)))
		server.raw.Control(func(fd uintptr) { unix.Shutdown(int(fd), unix.SHUT_WR) })
	})
	if gone := pump(down, server, nil, new(time.Time)); gone {
		server.drain()
	}
	client.close()
	server.close()
	work.Wait()
}

// handshake carries the authentication ("Authentication Protocol" in the D-Bus specification),
// which is lines, each with its answer up to the last one. Clients as sd-bus do not wait for the
// answers, and some versions of xdg-dbus-proxy then take those for messages: so the lines go one at
// a time. It returns what the client has said since.
//
// Where it ends must be the same for everybody who reads: to xdg-dbus-proxy a line ends with both
// characters, and one that only begins with BEGIN is the last as well. A client that could make us
// wait for another would send messages past us.
func handshake(client, server conn) (said []byte, ok bool) {
	buffer, held := make([]byte, bufferSize), 0
	for first := true; ; {
		end := bytes.IndexByte(buffer[:held], '\n') + 1
		if end == 0 {
			if held == len(buffer) {
				return nil, false // no line is that long
			}
			n, rights, err := client.receive(buffer[held:], make([]byte, rightsSpace))
			closeAll(rights)
			if err != nil || rights != nil {
				return nil, false // descriptors are for messages, and a client asks first whether it may send any
			}
			held += n
			continue
		}
		line := buffer[:end]
		if !plainAuthLine(line, first) || server.send(line, nil) != nil {
			return nil, false
		}
		first = false
		if bytes.Equal(line, []byte("BEGIN\r\n")) {
			return buffer[end:held], true
		}
		held = copy(buffer, buffer[end:held])
		if !answer(client, server) {
			return nil, false
		}
	}
}

// plainAuthLine reports whether a line of the authentication is one to every reader: printable
// characters and both of the line's end, before the first line a zero byte, and nothing behind the
// word that ends it all.
func plainAuthLine(line []byte, first bool) bool {
	if first {
		line = bytes.TrimPrefix(line, []byte{0})
	}
	text, whole := bytes.CutSuffix(line, []byte("\r\n"))
	if !whole || bytes.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) {
		return false
	}
	return !bytes.HasPrefix(text, []byte("BEGIN")) || len(text) == len("BEGIN")
}

// answer carries one line to the client.
func answer(client, server conn) bool {
	line := make([]byte, 512)
	for {
		n, rights, err := server.receive(line, make([]byte, rightsSpace))
		closeAll(rights)
		if err != nil || client.send(line[:n], nil) != nil {
			return false
		}
		if line[n-1] == '\n' {
			return true
		}
	}
}

// pump carries what comes from src, at the pace of the slower one, until one of them ends. It
// reports whether that was the sender, and keeps the time at which something was carried last. said
// came before.
func pump(to sender, src conn, said []byte, last *time.Time) (gone bool) {
	defer to.close()
	data, control := make([]byte, bufferSize), make([]byte, rightsSpace)
	if len(said) > 0 {
		gone = to.send(said, nil) != nil
		*last = time.Now()
	}
	for !gone {
		n, rights, err := src.receive(data, control)
		if err != nil {
			closeAll(rights)
			break
		}
		gone = to.send(data[:n], rights) != nil
		*last = time.Now()
	}
	return gone
}

// A sender passes on a stream of messages, and descriptors, which become its own.
//
// Descriptors go with the first byte of the message that they belong to. The kernel ends a read
// behind the piece that they came with, but puts what came before in front of it: so they belong to
// the last message that begins in what was read.
type sender interface {
	send(data []byte, rights []int) error
	close()
}

// verbatim passes on all.
type verbatim struct {
	dst      conn
	messages messageStream
}

func (v *verbatim) send(data []byte, rights []int) error {
	defer closeAll(rights)
	start := v.messages.lastStart(data)
	if rights == nil {
		start = 0
	}
	if err := v.dst.send(data[:start], nil); err != nil {
		return err
	}
	return v.dst.send(data[start:], rights)
}

func (v *verbatim) close() {}

// judged passes on what a judge does not drop. What is no message ends the connection: where the
// next one begins, nobody would know.
type judged struct {
	dst      conn
	held     *heldRights
	judge    func(begin []byte) (judgement, error)
	messages messageStream // tells which message descriptors belong to
	begin    []byte        // of the message that has begun, as far as it has come and is not judged
	need     int           // of it, to judge it; 0: its first 16 bytes
	rights   []int         // that belong to it, and were not passed on yet
	left     int64         // of what follows what was judged
	drop     bool
}

// A judgement is what becomes of a message. The judge is given its beginning, first 16 bytes, and
// may change what it has.
type judgement struct {
	need int // more than there is: so much of it is needed to judge it
	drop bool
}

// The types of messages ("Message Format" in the D-Bus specification).
const (
	messageCall = 1 + iota
	messageReturn
	messageError
	messageSignal
)

var errNoMessage = errors.New("not a D-Bus message")

func (w *judged) send(data []byte, rights []int) error {
	start := w.messages.lastStart(data)
	for at := 0; at < len(data); {
		if at == start && len(rights) > 0 {
			if !w.held.take(len(rights)) {
				closeAll(rights)
				return errTooManyHeld
			}
			w.rights, rights = append(w.rights, rights...), nil
		}
		piece, err := w.next(data[at:])
		if err == nil && len(piece.passed) > 0 {
			err = w.dst.send(piece.passed, w.rights)
		}
		if err != nil {
			closeAll(rights)
			return err
		}
		if piece.known {
			w.close()
		}
		at += piece.taken
	}
	return nil
}

// A messagePiece is the next part of a message.
type messagePiece struct {
	taken  int    // bytes of it
	known  bool   // whether it is known what becomes of the message
	passed []byte // what of it goes on
}

// next takes a part of one message off the data.
func (w *judged) next(data []byte) (messagePiece, error) {
	if w.left > 0 {
		n := int(min(w.left, int64(len(data))))
		w.left -= int64(n)
		return w.passed(n, data[:n]), nil
	}
	n := min(max(w.need, messageHeader)-len(w.begin), len(data))
	w.begin = append(w.begin, data[:n]...)
	if len(w.begin) < max(w.need, messageHeader) {
		return messagePiece{taken: n}, nil
	}
	rest, wrong := messageRest(w.begin)
	if kind := w.begin[1]; wrong || kind < messageCall || kind > messageSignal {
		return messagePiece{}, errNoMessage
	}
	verdict, err := w.judge(w.begin)
	whole := messageHeader + rest
	switch {
	case err != nil:
		return messagePiece{}, err
	case int64(verdict.need) > whole:
		return messagePiece{}, errNoMessage
	case verdict.need > len(w.begin):
		w.need = verdict.need
		return messagePiece{taken: n}, nil
	}
	begin := w.begin
	w.begin, w.need, w.left, w.drop = nil, 0, whole-int64(len(begin)), verdict.drop
	return w.passed(n, begin), nil
}

func (w *judged) passed(taken int, passed []byte) messagePiece {
	if w.drop {
		passed = nil
	}
	return messagePiece{taken, true, passed}
}

func (w *judged) close() {
	closeAll(w.rights)
	w.held.give(len(w.rights))
	w.rights = nil
}

// heldRights counts the descriptors of one sandbox's messages whose beginning has not come as a
// whole: a client could have the launcher hold as many as it may open.
type heldRights struct{ n atomic.Int64 }

// maxHeldRights is as many as one message may have, and one more.
const maxHeldRights = 2 * maxRights

var errTooManyHeld = errors.New("too many descriptors for messages that have not come")

func (h *heldRights) take(n int) bool {
	if h.n.Add(int64(n)) > maxHeldRights {
		h.give(n)
		return false
	}
	return true
}

func (h *heldRights) give(n int) { h.n.Add(int64(-n)) }

// A messageStream knows where messages begin in a stream of them ("Message Format" in the D-Bus
// specification).
type messageStream struct {
	header []byte // the beginning of a message, as long as it is not whole
	left   int64  // of the message that has begun
	lost   bool   // what came is no message
}

// messageHeader is the part of a message that its length is in.
const messageHeader = 16

// lastStart returns where the last message begins in the next bytes of the stream; 0 if none does,
// or if nobody knows.
func (m *messageStream) lastStart(data []byte) int {
	start := 0
	for at := 0; at < len(data) && !m.lost; {
		if m.left > 0 {
			n := min(m.left, int64(len(data)-at))
			m.left, at = m.left-n, at+int(n)
			continue
		}
		if len(m.header) == 0 {
			start = at
		}
		n := min(messageHeader-len(m.header), len(data)-at)
		m.header, at = append(m.header, data[at:at+n]...), at+n
		if len(m.header) == messageHeader {
			m.left, m.lost = messageRest(m.header)
			m.header = m.header[:0]
		}
	}
	return start
}

// messageRest is how much of a message comes behind its first 16 bytes.
func messageRest(header []byte) (rest int64, wrong bool) {
	var order binary.ByteOrder = binary.LittleEndian
	switch header[0] {
	case 'l':
	case 'B':
		order = binary.BigEndian
	default:
		return 0, true
	}
	const longest = 128 << 20
	body, fields := int64(order.Uint32(header[4:])), int64(order.Uint32(header[12:]))
	rest = (fields+7)&^7 + body
	return rest, rest > longest
}

// drain reads to the end.
func (c conn) drain() {
	data, control := make([]byte, bufferSize), make([]byte, rightsSpace)
	for {
		_, rights, err := c.receive(data, control)
		closeAll(rights)
		if err != nil {
			return
		}
	}
}

// receive reads some bytes and the descriptors that came with them, which are the caller's to
// close.
func (c conn) receive(data, control []byte) (n int, rights []int, err error) {
	var controls, flags int
	waited := c.raw.Read(func(fd uintptr) bool {
		n, controls, flags, _, err = unix.Recvmsg(int(fd), data, control, unix.MSG_CMSG_CLOEXEC)
		return !again(err)
	})
	if waited != nil {
		return 0, nil, waited
	}
	if err != nil {
		return 0, nil, err
	}
	messages, err := unix.ParseSocketControlMessage(control[:controls])
	for i := range messages {
		if fds, err := unix.ParseUnixRights(&messages[i]); err == nil {
			rights = append(rights, fds...)
		}
	}
	switch {
	case err != nil:
		return 0, rights, err
	case flags&unix.MSG_CTRUNC != 0: // this process can open no more files; without them the message would be another one
		return 0, rights, unix.EMFILE
	case n == 0:
		return 0, rights, io.EOF
	}
	return n, rights, nil
}

// send writes bytes, and descriptors with the first of them.
func (c conn) send(data []byte, rights []int) error {
	var control []byte
	if len(rights) > 0 {
		control = unix.UnixRights(rights...)
	}
	for len(data) > 0 {
		var n int
		var err error
		waited := c.raw.Write(func(fd uintptr) bool {
			n, err = unix.SendmsgN(int(fd), data, control, nil, unix.MSG_NOSIGNAL)
			return !again(err)
		})
		if err := errors.Join(waited, err); err != nil {
			return err
		}
		data, control = data[n:], nil
	}
	return nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// again reports whether a call is to be made again when the socket is ready.
func again(err error) bool { return err == unix.EAGAIN || err == unix.EINTR }
