package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// written is a log of some lines, in several files, and its key.
func written(t *testing.T, lines int) (dir, key string) {
	t.Helper()
	dir = t.TempDir()
	a, notices := Open(filepath.Join(dir, Name), 0)
	a.most = 2000
	for i := range lines {
		if _, err := a.Append(line{Event: fmt.Sprintf("event %d", i)}, i%3 == 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Close(); err != nil || len(notices) > 0 {
		t.Fatal(err, notices)
	}
	key, err := Key(dir)
	if err != nil {
		t.Fatal(err)
	}
	return dir, key
}

func files(t *testing.T, dir string) []string {
	t.Helper()
	paths, err := earlier(dir)
	if err != nil || len(paths) < 2 {
		t.Fatal(paths, err)
	}
	return append(paths, filepath.Join(dir, Name))
}

func lookAt(t *testing.T, dir, key string, kept ...string) *Report {
	t.Helper()
	report, err := Verify(dir, key, kept...)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// Whatever line is changed, taken out, doubled or put elsewhere, and wherever the log is cut off,
// it is found.
func TestNoLineIsChangedWithoutANotice(t *testing.T) {
	dir, key := written(t, 40)
	if report := lookAt(t, dir, key); len(report.Problems) > 0 || report.Unsigned != 0 || report.First != 0 {
		t.Fatal(report)
	}
	for _, path := range files(t, dir) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		lines := bytes.SplitAfter(text, []byte("\n"))
		lines = lines[:len(lines)-1]
		for i, is := range lines {
			one := slices.Clone(is)
			one[len(one)/2] ^= 1
			for name, changed := range map[string][][]byte{
				"changed":    slices.Concat(lines[:i], [][]byte{one}, lines[i+1:]),
				"taken out":  slices.Concat(lines[:i], lines[i+1:]),
				"doubled":    slices.Concat(lines[:i+1], lines[i:]),
				"exchanged":  slices.Concat(lines[:i], slices.Clone(lines[min(i+1, len(lines)-1):min(i+2, len(lines))]), lines[i:i+1], lines[min(i+2, len(lines)):]),
				"put before": slices.Concat(lines[:i], [][]byte{[]byte("{\"event\":\"x\"}\n")}, lines[i:]),
				"cut off":    lines[:i],
			} {
				now := bytes.Join(changed, nil)
				if bytes.Equal(now, text) {
					continue
				}
				os.WriteFile(path, now, 0o600)
				if report := lookAt(t, dir, key); len(report.Problems) == 0 && report.First == 0 {
					t.Errorf("%s, line %d %s: %+v", filepath.Base(path), i, name, report)
				}
			}
		}
		os.WriteFile(path, text, 0o600)
	}
}

// Full files may be taken elsewhere, the oldest first; any other that is gone is missed.
func TestFilesThatAreGone(t *testing.T) {
	dir, key := written(t, 60)
	paths := files(t, dir)
	if err := os.Remove(paths[0]); err != nil {
		t.Fatal(err)
	}
	if report := lookAt(t, dir, key); len(report.Problems) > 0 || report.First == 0 {
		t.Error(report)
	}
	p, err := Prove(dir, key, lookAt(t, dir, key).First+3)
	if err == nil {
		err = p.Check(key)
	}
	if err != nil {
		t.Error(err)
	}
	if _, err := Prove(dir, key, 0); err == nil {
		t.Error("a line that is not there is proved")
	}
	os.Remove(paths[2])
	if report := lookAt(t, dir, key); len(report.Problems) == 0 {
		t.Error(report)
	}
}

// The end that is cut off together with the last checkpoint is missed by whoever kept that, and by
// the gateway, which knows how far it had come.
func TestACheckpointThatWasKeptElsewhere(t *testing.T) {
	dir, key := written(t, 40)
	kept, err := Head(dir)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, Name)
	a, _ := Open(path, 0)
	end, err := a.Append(line{Event: "more"}, true)
	if err != nil {
		t.Fatal(err)
	}
	a.Close()
	p, err := ProveSince(dir, key, kept)
	if err == nil {
		err = p.Check(key)
	}
	if err != nil {
		t.Error(err)
	}
	p.Hashes[0][0] ^= 1
	if p.Check(key) == nil {
		t.Error("a forged proof passes")
	}
	os.RemoveAll(dir + "/" + headName)
	for _, path := range files(t, dir) {
		os.Remove(path)
	}
	if report := lookAt(t, dir, key, kept); len(report.Problems) == 0 {
		t.Error(report)
	}
	_, other := written(t, 20)
	if _, err := Verify(dir, other, kept); err == nil || !strings.Contains(err.Error(), "another key") {
		t.Error(err)
	}
	if a, notices := Open(path, end); len(notices) != 1 || !strings.Contains(notices[0], "shorter") || a.Close() != nil {
		t.Error(notices)
	}
}

// What a gateway finds changed it says, and puts on record; what the last one could not sign any
// more it signs, and says how much that is.
func TestAGatewaySaysWhatItFinds(t *testing.T) {
	dir, key := written(t, 4)
	path := filepath.Join(dir, Name)
	add := func(text string) {
		file, _ := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
		file.WriteString(text)
		file.Close()
	}
	reopen := func() []string {
		a, notices := Open(path, 0)
		a.Close()
		return notices
	}
	add("{\"event\":\"of a killed gateway\"}\n{\"event\":\"cut")
	if report := lookAt(t, dir, key); report.Unsigned != 1 || len(report.Problems) > 0 {
		t.Error(report)
	}
	if notices := reopen(); len(notices) > 0 {
		t.Error(notices)
	}
	if report := lookAt(t, dir, key); report.Unsigned != 0 || len(report.Problems) > 0 {
		t.Error(report)
	}
	text, _ := os.ReadFile(path)
	if !bytes.Contains(text, []byte(`"event":"audit_unsigned","lines":1`)) {
		t.Errorf("%s", text)
	}
	os.WriteFile(path, bytes.Replace(text, []byte("event 1"), []byte("event 2"), 1), 0o600)
	if notices := reopen(); len(notices) != 1 || !strings.Contains(notices[0], "not what was signed") {
		t.Error(notices)
	}
	if text, _ := os.ReadFile(path); !bytes.Contains(text, []byte(`"event":"audit_changed"`)) {
		t.Errorf("%s", text)
	}
}

// Who waits for the disk at the same time waits for it once, and a file that is full at any moment
// loses no line.
func TestManyWriteAtATime(t *testing.T) {
	dir := t.TempDir()
	a, _ := Open(filepath.Join(dir, Name), 0)
	a.most = 1000
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			if _, err := a.Append(line{Event: fmt.Sprintf("event %d", i)}, true); err != nil {
				t.Error(err)
			}
			if i%10 == 0 {
				a.AppendTaking(line{Event: "taken"})
			}
		})
	}
	all.Wait()
	a.Close()
	key, _ := Key(dir)
	report := lookAt(t, dir, key)
	seen, checkpoints := map[string]int{}, 0
	err := Each(dir, 0, func(number int64, text []byte) error {
		var l line
		if err := json.Unmarshal(text, &l); err != nil {
			return err
		}
		if seen[l.Event]++; l.Event == eventCheckpoint {
			checkpoints++
		}
		if number >= report.Lines {
			t.Error("line", number)
		}
		return nil
	})
	if err != nil || len(report.Problems) > 0 || seen["taken"] != 20 || len(files(t, dir)) < 3 {
		t.Error(err, report, seen["taken"])
	}
	for i := range 200 {
		if seen[fmt.Sprintf("event %d", i)] != 1 {
			t.Error("event", i)
		}
	}
	if checkpoints > 190 {
		t.Errorf("the disk was waited for %d times", checkpoints)
	}
}

// A crash between both renames of a full file leaves none: the next gateway goes on after it.
func TestAFullFileWithoutANextOne(t *testing.T) {
	dir, key := written(t, 30)
	lines := lookAt(t, dir, key).Lines
	path := filepath.Join(dir, Name)
	text, _ := os.ReadFile(path)
	first, _, _ := bytes.Cut(text, []byte("\n"))
	if err := os.Rename(path, filepath.Join(dir, fmt.Sprintf(segmentName, ownLine(first).Before.Lines))); err != nil {
		t.Fatal(err)
	}
	a, notices := Open(path, 0)
	if _, err := a.Append(line{Event: "next"}, true); err != nil || len(notices) > 0 {
		t.Error(err, notices)
	}
	if text, err := textSince(a, time.Unix(0, 0)); err != nil || !strings.Contains(text, "event 29") {
		t.Errorf("%q, %v", text, err)
	}
	a.Close()
	if report := lookAt(t, dir, key); len(report.Problems) > 0 || report.Lines <= lines {
		t.Error(report, lines)
	}
}

// A log that was made anew as a whole is not the one that the key signed.
func TestALogThatAnotherKeySigned(t *testing.T) {
	dir, key := written(t, 5)
	other, _ := written(t, 6)
	text, err := os.ReadFile(filepath.Join(other, Name))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, Name), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	os.Remove(filepath.Join(dir, headName))
	if report := lookAt(t, dir, key); len(report.Problems) == 0 {
		t.Error(report)
	}
	head, _ := Head(other)
	os.WriteFile(filepath.Join(dir, headName), []byte(head), 0o600)
	if report, err := Verify(dir, key); err == nil {
		t.Error(report)
	}
}

// The head is written over where it stands, and always is the last checkpoint; what else stands
// there makes room for it.
func TestTheHeadIsTheLastCheckpoint(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, headName)
	a, _ := Open(filepath.Join(dir, Name), 0)
	defer a.Close()
	key, err := Key(dir)
	if err != nil {
		t.Fatal(err)
	}
	follows := func(what string) os.FileInfo {
		t.Helper()
		if _, err := a.Append(line{Event: what}, true); err != nil {
			t.Fatal(err)
		}
		head, err := Head(dir)
		if err != nil {
			t.Fatal(err)
		}
		if c, err := OpenCheckpoint(head, key); err != nil || c.Size != a.tree.size-1 {
			t.Errorf("%s: %+v, %v, and there are %d lines", what, c, err, a.tree.size)
		}
		info, err := os.Lstat(path)
		if err != nil || !info.Mode().IsRegular() || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", what, info, err)
		}
		return info
	}
	first := follows("the first")
	for i := range 12 {
		if !os.SameFile(first, follows(fmt.Sprint(i))) {
			t.Fatal("another file was put in its place")
		}
	}
	other := filepath.Join(dir, "other")
	for what, stand := range map[string]func() error{
		"a longer one": func() error { return os.WriteFile(path, bytes.Repeat([]byte("x"), sector), 0o600) },
		"an empty one": func() error { return os.WriteFile(path, nil, 0o600) },
		"none":         func() error { return os.Remove(path) },
		"a link": func() error {
			return errors.Join(os.WriteFile(other, []byte("kept"), 0o600), os.Remove(path), os.Symlink(other, path))
		},
		"a pipe": func() error { return errors.Join(os.Remove(path), syscall.Mkfifo(path, 0o600)) },
	} {
		if err := stand(); err != nil {
			t.Fatal(err)
		}
		follows(what)
	}
	if text, err := os.ReadFile(other); string(text) != "kept" {
		t.Errorf("%q, %v", text, err)
	}
}
