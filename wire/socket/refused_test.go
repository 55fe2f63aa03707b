package socket

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"testing"
)

// A client of HTTP takes an answer that comes before it has asked for no answer.
func TestWhoIsRefusedHearsWhyAfterHavingAsked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	g := Guard(l, "", 4, func(Peer) error { return errors.New("why") })
	g.Refusal = func(why error) []byte {
		return []byte("HTTP/1.1 403 Forbidden\r\nContent-Length: 3\r\nConnection: close\r\n\r\n" + why.Error())
	}
	defer g.CloseAll()
	go g.Accept()
	for range 500 {
		client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}}}
		response, err := client.Post("http://gateway/", "text/plain", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || string(text) != "why" || response.StatusCode != http.StatusForbidden {
			t.Errorf("%d %q %v", response.StatusCode, text, err)
		}
	}
}
