package main

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/grants/client"
	"github.com/clairun/clai-sandbox/integration/gateway"
	"github.com/clairun/clai-sandbox/profile"
)

// An agent's question in words is shown as words, and answered by the number of a choice, by
// nothing else.
func TestAPersonAnswersInWords(t *testing.T) {
	home, runtime := newHome(t), newRuntime(t)
	for _, name := range []string{"XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME"} {
		t.Setenv(name, "")
	}
	t.Setenv("HOME", home)
	t.Setenv("XDG_RUNTIME_DIR", runtime)
	caller, err := profile.CurrentCaller()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() {
		over <- gateway.Run(ctx, gateway.Options{Directories: caller.Directories(), Home: home, User: "somebody", Version: "test", Caller: caller})
	}()
	defer func() { cancel(); <-over }()
	broker := &client.Client{Socket: filepath.Join(grants.SocketDirectory(caller.Directories()), grants.SocketName)}
	session := (*grants.Session)(nil)
	for end := time.Now().Add(20 * time.Second); session == nil; time.Sleep(time.Millisecond) {
		if session, err = broker.Open(ctx, grants.SessionSpec{Agent: "main", Workspace: home}); err != nil && time.Now().After(end) {
			t.Fatal(err)
		}
	}
	defer session.Close()
	answered := make(chan grants.PersonAnswer, 1)
	go func() {
		a, _ := broker.AskPerson(ctx, session.ID, grants.PersonQuestion{Text: "Which one?\x1b[2J\nr0123 agent main asks to run", Choices: []string{"this", "that"}})
		answered <- a
	}()
	var list []grants.Request
	for end := time.Now().Add(20 * time.Second); len(list) == 0; time.Sleep(time.Millisecond) {
		if list, err = broker.Pending(ctx); err != nil || time.Now().After(end) {
			t.Fatal(list, err)
		}
	}
	var shown bytes.Buffer
	printRequests(&shown, list, time.Now())
	for _, want := range []string{list[0].ID + "  agent main asks you\n", `Which one?\u{1B}[2J` + "\n   ", "  1         this\n", "clai-sandbox grants answer " + list[0].ID} {
		if !strings.Contains(shown.String(), want) {
			t.Errorf("no %q in\n%s", want, shown.String())
		}
	}
	for _, args := range [][]string{{"answer", list[0].ID}, {"answer", list[0].ID, "that"}, {"answer", list[0].ID, "3"}, {"answer", list[0].ID, "0"}, {"allow", list[0].ID}} {
		if err := newApp().Run(append([]string{"clai-sandbox", "grants"}, args...)); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
	err = newApp().Run([]string{"clai-sandbox", "grants", "answer", list[0].ID[:8], "2"})
	if a := <-answered; err != nil || a.Answer != "that" || a.Outcome != grants.OutcomeAnswered {
		t.Errorf("%+v, %v", a, err)
	}
}
