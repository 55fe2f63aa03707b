package mcp

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/sys/unix"
)

const (
	headerTimeout = 10 * time.Second
	bodyTimeout   = 30 * time.Second
	minToken      = 16 // bytes
)

// ReadToken reads the token that clients have to send from a file that nobody else may read. Where
// the file lies is the caller's to judge: a sandbox must not see it.
func ReadToken(path string) (string, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer file.Close()
	info, err := file.Stat()
	switch {
	case err != nil:
		return "", err
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("%s: is not a file", path)
	case info.Mode().Perm()&0o077 != 0:
		return "", fmt.Errorf("%s: others may read it: chmod 600", path)
	case info.Size() > 4096:
		return "", fmt.Errorf("%s: is too long for a token", path)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || stat.Nlink > 1 {
		return "", fmt.Errorf("%s: has another name, where others may read it", path)
	} else if int(stat.Uid) != os.Getuid() {
		return "", fmt.Errorf("%s: belongs to user %d", path, stat.Uid)
	}
	text := make([]byte, info.Size())
	if _, err := file.Read(text); err != nil && info.Size() > 0 {
		return "", err
	}
	token := strings.TrimSpace(string(text))
	if len(token) < minToken {
		return "", fmt.Errorf("%s: a token has at least %d characters", path, minToken)
	}
	return token, nil
}

// ServeHTTP serves clients at a listener by the streamable HTTP transport, until the context ends.
// On a unix socket only the same user may call; elsewhere a token is needed.
func ServeHTTP(ctx context.Context, o Options, listener net.Listener, token string) error {
	_, isUnix := listener.Addr().(*net.UnixAddr)
	if !isUnix && token == "" {
		return errors.New("without a token, anybody on this machine could run commands")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	h := newRegistry(ctx, o)
	handler := h.admit(sdk.NewStreamableHTTPHandler(h.server, &sdk.StreamableHTTPOptions{SessionTimeout: sittingIdle, MaxRequestBodyBytes: maxMessage}))
	taken := own(listener)
	server := &http.Server{
		Handler:           guardHTTP(wholeBody(handler, bodyTimeout), token, isUnix),
		ReadHeaderTimeout: headerTimeout, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ConnContext: taken.withConn,
	}
	go func() {
		<-ctx.Done()
		server.Close()
	}()
	err := server.Serve(taken)
	cancel()
	h.close()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// wholeBody reads a request before anybody takes it up, so that one that does not come holds
// neither a seat nor, for long, a connection.
func wholeBody(next http.Handler, waitTimeout time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		if err := control.SetReadDeadline(time.Now().Add(waitTimeout)); err != nil {
			http.Error(w, "no deadline can be set", http.StatusInternalServerError)
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxMessage))
		if err != nil {
			w.Header().Set("Connection", "close")
			status := http.StatusRequestTimeout
			if errors.As(err, new(*http.MaxBytesError)) {
				status = http.StatusRequestEntityTooLarge
			}
			http.Error(w, "the request did not come as a whole", status)
			return
		}
		_ = control.SetReadDeadline(time.Time{}) // what is asked for takes as long as it takes
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, r)
	})
}

// guardHTTP lets only those in who may come: with the token, and not from a page in somebody's
// browser.
func guardHTTP(next http.Handler, token string, isUnix bool) http.Handler {
	want := sha256.Sum256([]byte("Bearer " + token))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got := sha256.Sum256([]byte(r.Header.Get("Authorization")))
		switch {
		case r.Header.Get("Origin") != "":
			w.Header().Set("Connection", "close")
			http.Error(w, "no page may call", http.StatusForbidden)
		case !isUnix && !loopback(r.Host):
			w.Header().Set("Connection", "close")
			http.Error(w, "called by another name than this machine's own", http.StatusForbidden)
		case token != "" && subtle.ConstantTimeCompare(got[:], want[:]) != 1:
			w.Header().Set("Connection", "close") // who may not come keeps nothing
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "a token is needed", http.StatusUnauthorized)
		default:
			if conn, is := r.Context().Value(connKey{}).(*ownConn); is && conn.admit() != nil {
				w.Header().Set("Connection", "close")
				http.Error(w, "nobody in a sandbox may call", http.StatusForbidden)
				return
			}
			next.ServeHTTP(w, r)
		}
	})
}

// loopback reports whether a Host header names this machine by an address of its own: a name could
// be made to lead here.
func loopback(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = host
	}
	ip := net.ParseIP(strings.Trim(name, "[]"))
	return name == "localhost" || ip != nil && ip.IsLoopback()
}
