package files

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
)

func TestTheToolsSeeWhatTheSandboxSees(t *testing.T) {
	h := newHost(t)
	secret := h.file("secret/token", "not for agents\n")
	shown := h.file("shown/a.txt", "first\nsecond\n")
	alone := h.file("alone/single.conf", "one = 1\n")
	beside := h.file("alone/other.conf", "x")
	h.grant(filepath.Join(h.home, "shown"), profile.ReadOnly)
	h.grant(alone, profile.ReadWrite)
	if err := os.Symlink(secret, filepath.Join(h.work, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(h.file("work/locked", "locked\n"), 0o444); err != nil {
		t.Fatal(err)
	}
	h.file("work/a.go", "package a\n\nfunc main() {}\n")

	for name, c := range map[string]struct {
		Request
		want Code
	}{
		"what nothing grants is not there":          {Request{Read: &Read{Path: secret}}, NotFound},
		"nor through a link in the workspace":       {Request{Read: &Read{Path: "link"}}, NotFound},
		"nor through ..":                            {Request{Read: &Read{Path: "../secret/token"}}, NotFound},
		"nor beside a file that is":                 {Request{Read: &Read{Path: beside}}, NotFound},
		"nor what only root may read":               {Request{Read: &Read{Path: "../../../../../../../../../etc/shadow"}}, Denied},
		"what is granted is read":                   {Request{Read: &Read{Path: shown}}, ""},
		"and not written":                           {Request{Write: &Write{Path: shown, Content: "x"}}, ReadOnly},
		"nor is a file made beside it":              {Request{Write: &Write{Path: shown + ".new", Content: "x"}}, ReadOnly},
		"nor one edited":                            {Request{Edit: &Edit{Path: shown, OldText: "first", NewText: "1st"}}, ReadOnly},
		"nor one patched":                           {Request{ApplyPatch: &ApplyPatch{Patch: "*** Begin Patch\n*** Delete File: " + shown + "\n*** End Patch"}}, ReadOnly},
		"no file is made where nothing is shown":    {Request{Write: &Write{Path: filepath.Join(h.home, "new"), Content: "x"}}, ReadOnly},
		"nor a file that may not be written":        {Request{Write: &Write{Path: "locked", Content: "x"}}, Denied},
		"a device is not opened":                    {Request{Read: &Read{Path: "/dev/zero"}}, NotRegular},
		"nor written":                               {Request{Write: &Write{Path: "/dev/null", Content: "x"}}, NotRegular},
		"a directory is no file":                    {Request{Read: &Read{Path: "."}}, IsDirectory},
		"a link to what is not shown is not edited": {Request{Edit: &Edit{Path: "link", OldText: "not", NewText: "all"}}, NotFound},
		"a path of 10 MB":                           {Request{Read: &Read{Path: strings.Repeat("a/", 5<<20)}}, Invalid},
		"a path with NUL":                           {Request{Read: &Read{Path: "a\x00b"}}, Invalid},
		"no path":                                   {Request{Read: &Read{}}, Invalid},
		"glob where nothing is shown":               {Request{Glob: &Glob{Pattern: "*", Path: filepath.Join(h.home, "secret")}}, NotFound},
		"grep where nothing is shown":               {Request{Grep: &Grep{Pattern: "agents", Path: filepath.Join(h.home, "secret")}}, NotFound},
	} {
		response := h.call(c.Request)
		switch {
		case c.want == "" && response.Error != nil:
			t.Errorf("%s: %v", name, response.Error)
		case c.want != "" && (response.Error == nil || response.Error.Code != c.want):
			t.Errorf("%s: %+v, and not %s", name, response.Error, c.want)
		}
	}

	if r := h.call(Request{Grep: &Grep{Pattern: "not for", Path: h.home}}); r.Error != nil || len(r.Grep.Matches) != 0 {
		t.Errorf("grep found %+v", r)
	}
	if r := h.call(Request{Glob: &Glob{Pattern: "**/*token*", Path: h.home}}); r.Error != nil || len(r.Glob.Files) != 0 {
		t.Errorf("glob found %+v", r.Glob)
	}
	r := h.call(Request{Edit: &Edit{Path: alone, OldText: "1", NewText: "2"}})
	if r.Error != nil || !r.Edit.InPlace || content(t, alone) != "one = 2\n" {
		t.Errorf("a file that is a mount of its own: %+v, and has %q", r, content(t, alone))
	}
	r = h.call(Request{Write: &Write{Path: "sub/dir/b.txt", Content: "text\n", CreateParents: true}})
	if r.Error != nil || !r.Write.Created || r.Write.InPlace || content(t, filepath.Join(h.work, "sub/dir/b.txt")) != "text\n" {
		t.Errorf("a new file: %+v", r)
	}
	if got := content(t, secret) + content(t, shown) + content(t, beside); got != "not for agents\nfirst\nsecond\nx" {
		t.Errorf("the host's files have changed: %q", got)
	}
	entries, err := os.ReadDir(h.work)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if strings.HasSuffix(entry.Name(), ".tmp") {
			t.Errorf("%s is left", entry.Name())
		}
	}
}

func TestAPipeDoesNotHoldATool(t *testing.T) {
	tools := here(t)
	pipe := tools.at("pipe")
	if err := syscall.Mkfifo(pipe, 0o644); err != nil {
		t.Fatal(err)
	}
	watch, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(watch)
	if _, err := unix.InotifyAddWatch(watch, pipe, unix.IN_OPEN); err != nil {
		t.Fatal(err)
	}
	for _, r := range []Request{{Read: &Read{Path: pipe}}, {Write: &Write{Path: pipe, Content: "x"}}, {Edit: &Edit{Path: pipe, OldText: "a", NewText: "b"}},
		{Grep: &Grep{Pattern: "x", Path: pipe}}} {
		if s := tools.do(r); s.Error == nil || s.Error.Code != NotRegular {
			t.Errorf("%+v: %+v", r, s.Error)
		}
	}
	if s := tools.do(Request{Grep: &Grep{Pattern: "x"}}); s.Error != nil {
		t.Error(s.Error)
	}
	if n, err := unix.Read(watch, make([]byte, 4096)); err != unix.EAGAIN {
		t.Errorf("the pipe was opened: %d bytes of events, %v", n, err)
	}
}

// badRequests are texts that are no requests, and what each is answered.
var badRequests = map[string]Code{
	"":                                 Invalid,
	"null":                             Invalid,
	"{}":                               Invalid,
	"[]":                               Invalid,
	`{"read":{"path":"a"}`:             Invalid,
	`{"read":{"path":"a"}} x`:          Invalid,
	`{"read":{"path":"a"}}{}`:          Invalid,
	`{"read":{"path":1}}`:              Invalid,
	`{"read":{"path":"a","x":1}}`:      Invalid,
	`{"remove":{"path":"a"}}`:          Invalid,
	`{"read":{},"write":{}}`:           Invalid,
	"{\"read\":{\"path\":\"\xff\"":     Invalid,
	"{\"read\":{\"path\":\"\xff\"}}":   Invalid,
	`{"read":{"path":"\u0000"}}`:       Invalid,
	`{"read":{"path":"nothing here"}}`: NotFound,
	`{"read":{"path":"nothing","offset":-1}}`:          Invalid,
	`{"grep":{"pattern":"(a"}}`:                        Invalid,
	`{"grep":{"pattern":"(?=a)"}}`:                     Invalid,
	`{"grep":{"pattern":"a{1000}{1000}"}}`:             Invalid,
	`{"glob":{"pattern":"[a"}}`:                        Invalid,
	`{"glob":{"pattern":"{a"}}`:                        Invalid,
	`{"glob":{"pattern":"a/*/../b"}}`:                  Invalid,
	`{"edit":{"path":"x","oldText":""}}`:               NotFound,
	`{"edit":{"path":"x","oldText":"a","edits":[{}]}}`: Invalid,
	`{"applyPatch":{"patch":""}}`:                      Invalid,
}

func TestWhatIsNoRequestIsRefused(t *testing.T) {
	t.Chdir(newDirectory(t))
	for text, want := range badRequests {
		var out bytes.Buffer
		if status := Program(strings.NewReader(text), &out); status != 0 {
			t.Errorf("%q: exit status %d", text, status)
		}
		var response Response
		if err := json.Unmarshal(out.Bytes(), &response); err != nil || response.Error == nil {
			t.Errorf("%q: %v, %s", text, err, out.Bytes())
		} else if response.Error.Code != want {
			t.Errorf("%q: %+v, and not %s", text, response.Error, want)
		}
	}
	var out bytes.Buffer
	Program(strings.NewReader(`{"read":{"path":"`+strings.Repeat("a", MaxRequest)+`"}}`), &out)
	if !strings.Contains(out.String(), `"too_large"`) {
		t.Errorf("a request that is too large: %.200s", out.String())
	}
}

func TestAPathThatCannotBeOneIsToldAsSuch(t *testing.T) {
	for path, want := range map[string]string{"": "empty", "a\x00b": "NUL", "a\xff": "UTF-8", strings.Repeat("a", 10<<20): "longer than 4096 bytes"} {
		if _, err := absolute("/", path); codeOf(err) != Invalid || !strings.Contains(err.Error(), want) || len(err.Error()) > 100 {
			t.Errorf("%.20q: %v", path, err)
		}
	}
}

func FuzzRequest(f *testing.F) {
	for text := range badRequests {
		f.Add([]byte(text))
	}
	f.Add([]byte(`{"grep":{"pattern":"a*b","glob":"{a,b}*.go","ignoreCase":true,"context":2}}`))
	f.Add([]byte(`{"applyPatch":{"patch":"*** Begin Patch\n*** Add File: a\n+b\n*** End Patch"}}`))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text []byte) {
		request, err := parse(text)
		if err != nil {
			failure("", err)
			return
		}
		encoded, err := Encode(request)
		if err != nil {
			t.Fatal(err)
		}
		again, err := parse(encoded)
		if err != nil {
			t.Fatalf("%s: %v", encoded, err)
		}
		if other, _ := Encode(again); !bytes.Equal(encoded, other) {
			t.Fatalf("%s became %s", encoded, other)
		}
		if request.Glob != nil {
			compileGlob(request.Glob.Pattern)
			base(dir, request.Glob.Pattern)
		}
		if request.ApplyPatch != nil {
			parsePatch(request.ApplyPatch.Patch)
		}
	})
}

func TestAnAnswerThatIsNotOneIsRefused(t *testing.T) {
	request := Request{Read: &Read{Path: "a"}}
	for _, text := range []string{"", "{}", `{"write":{"path":"a"}}`, `{"read":{},"write":{}}`, `{"read":{"path":1}}`, `{"error":{"code":"x"}} {}`, "\x00", strings.Repeat(" ", MaxResponse+1)} {
		if response, err := Decode(request, strings.NewReader(text)); err == nil {
			t.Errorf("%.40q: %+v", text, response)
		}
	}
	if _, err := Decode(request, strings.NewReader(`{"error":{"code":"denied","message":"no"}}`)); err != nil {
		t.Error(err)
	}
}

// BenchmarkProgram is a start of the program without a sandbox.
func BenchmarkProgram(b *testing.B) {
	path := put(b, filepath.Join(newDirectory(b), "a"), "text\n")
	for b.Loop() {
		cmd := exec.Command("/proc/self/exe")
		cmd.Args = []string{Place}
		cmd.Stdin = strings.NewReader(`{"read":{"path":"` + path + `"}}`)
		if err := cmd.Run(); err != nil {
			b.Fatal(err)
		}
	}
}
