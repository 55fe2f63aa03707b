package client

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A broker that nobody needed for as long as it took to connect is started again.
func TestABrokerThatCameAndWentIsStartedAgain(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	if err := os.WriteFile(program, []byte("#!/bin/sh\nmkdir "+dir+"/first 2>/dev/null || mkdir "+dir+"/second; exit 0\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	s := Starter{Program: program, Socket: dir + "/socket", Log: dir + "/log"}
	over := make(chan struct{})
	go func() {
		defer close(over)
		for end := time.Now().Add(startTimeout); time.Now().Before(end); time.Sleep(time.Millisecond) {
			if _, err := os.Stat(dir + "/second"); err == nil {
				if l, err := net.Listen("unix", s.Socket); err == nil {
					t.Cleanup(func() { l.Close() })
				}
				return
			}
		}
	}()
	if err := s.Start(t.Context()); err != nil {
		t.Error(err)
	}
	<-over
	if _, err := os.Stat(dir + "/second"); err != nil {
		t.Error("it was started once")
	}
}
