package publish

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestAsManyConnectionsAsThereIsRoomForAreServedAtOnce(t *testing.T) {
	inside, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer inside.Close()
	served := make(chan net.Conn, 2*maxConnections)
	go func() {
		for {
			conn, err := inside.Accept()
			if err != nil {
				return
			}
			conn.Write([]byte("x"))
			served <- conn
		}
	}()
	p := Ports{Dial: func(uint16) (*net.TCPConn, error) {
		conn, err := net.Dial("tcp4", inside.Addr().String())
		return conn.(*net.TCPConn), err
	}}
	outside, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Serve(outside, 1); err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	hasAnswer := func(conn net.Conn, wait time.Duration) bool {
		conn.SetReadDeadline(time.Now().Add(wait))
		n, _ := conn.Read(make([]byte, 1))
		return n == 1
	}
	var clients []net.Conn
	for range maxConnections + 1 {
		conn, err := net.Dial("tcp4", outside.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		clients = append(clients, conn)
	}
	for _, conn := range clients[:maxConnections] {
		if !hasAnswer(conn, 10*time.Second) {
			t.Fatal("one for which there is room is not served")
		}
	}
	last := clients[maxConnections]
	if hasAnswer(last, 100*time.Millisecond) {
		t.Error("one too many is served while none has been silent for long")
	}
	// All but one are silent.
	busy := clients[maxConnections/2]
	stop := time.Now().Add(2 * leastSilence)
	for time.Now().Before(stop) && !hasAnswer(last, leastSilence/10) {
		busy.Write([]byte("x"))
	}
	if time.Now().After(stop) && !hasAnswer(last, 10*time.Second) {
		t.Error("it is kept out by those that say nothing")
	}
	if _, err := busy.Write([]byte("x")); err != nil {
		t.Error(err)
	}
	busy.SetReadDeadline(time.Now().Add(leastSilence / 10))
	if _, err := busy.Read(make([]byte, 1)); err == nil || err == io.EOF {
		t.Errorf("one that is used had to go: %v", err)
	}
	gone := 0
	for _, conn := range clients[:maxConnections] {
		conn.SetReadDeadline(time.Now().Add(time.Millisecond))
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			gone++
		}
	}
	if gone != 1 {
		t.Errorf("%d had to go for one", gone)
	}
	// The next is served, too, where each says a byte from time to time, and one as much as a
	// person's does.
	for _, conn := range append(clients[:maxConnections:maxConnections], last) {
		if conn != busy {
			go func() {
				for _, err := conn.Write([]byte("x")); err == nil; _, err = conn.Write([]byte("x")) {
					time.Sleep(leastSilence / 4)
				}
			}()
		}
	}
	stop = time.Now().Add(2 * leastSilence)
	for time.Now().Before(stop) {
		busy.Write(make([]byte, leastRate))
		time.Sleep(leastSilence / 10)
	}
	next, err := net.Dial("tcp4", outside.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	if !hasAnswer(next, 5*time.Second) {
		t.Error("it is kept out by those that say next to nothing")
	}
	busy.SetReadDeadline(time.Now().Add(leastSilence / 10))
	if _, err := busy.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("one that is used had to go: %v", err)
	}
	p.Close()
	last.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := last.Read(make([]byte, 1)); err != io.EOF && err == nil {
		t.Errorf("a connection goes on after the end: %v", err)
	}
}

func FuzzWhatTheKernelSaysOfListeners(f *testing.F) {
	message := make([]byte, headerSize+diagMessageSize)
	binary.NativeEndian.PutUint32(message, uint32(len(message)))
	binary.NativeEndian.PutUint16(message[4:], sockDiagByFamily)
	message[headerSize+1] = tcpListen
	binary.BigEndian.PutUint16(message[headerSize+4:], 3000)
	if list, done, err := readListening(message); len(list) != 1 || list[0] != 3000 || done || err != nil {
		f.Fatalf("%v %v %v", list, done, err)
	}
	f.Add(message)
	end := make([]byte, headerSize)
	end[0] = headerSize
	binary.NativeEndian.PutUint16(end[4:], unix.NLMSG_DONE)
	f.Add(append(message, end...))
	f.Fuzz(func(t *testing.T, text []byte) {
		if list, _, _ := readListening(text); len(list) > len(text)/headerSize {
			t.Errorf("%d ports in %d bytes", len(list), len(text))
		}
	})
}
