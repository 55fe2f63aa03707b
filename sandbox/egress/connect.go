package egress

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
)

// Connect asks the proxy at an address for a connection to host:port, and carries bytes between it
// and the two streams until the other end is done. What the proxy says of a refusal is the error.
func Connect(proxy, to string, in io.Reader, out io.Writer) error {
	if strings.ContainsAny(to, " \r\n") {
		return errors.New("clai-sandbox: not a destination: " + quoted(to))
	}
	conn, err := net.Dial("tcp", proxy)
	if err != nil {
		return fmt.Errorf("clai-sandbox: the network's proxy does not answer: %w", err)
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", to, to); err != nil {
		return err
	}
	from := bufio.NewReaderSize(conn, maxLine)
	h, err := readHead(from)
	if err != nil {
		return fmt.Errorf("clai-sandbox: the network's proxy does not answer: %w", err)
	}
	if _, status, _ := strings.Cut(h.line, " "); !strings.HasPrefix(status, "200 ") {
		why, _ := io.ReadAll(io.LimitReader(from, 4096))
		return errors.New(sentence(strings.TrimSpace(string(why))))
	}
	go func() {
		io.Copy(conn, in)
		conn.(*net.TCPConn).CloseWrite()
	}()
	_, err = io.Copy(out, from)
	return err
}
