package main

import (
	"archive/zip"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/clairun/clai-sandbox/sandbox/mounts/nomount"
)

// A command writes what it likes into the caches of tools. Neither another agent nor the person
// builds with it.
func TestAPoisonedCacheReachesNobodyElse(t *testing.T) {
	if os.Getenv(nomount.Variable) != "" {
		t.Skip("caches are only read here")
	}
	others := func(p project) {
		p.write(".config/clai-sandbox/config.json", `{"agents": {"other": {}}}`)
	}
	t.Run("go's modules and builds", func(t *testing.T) {
		t.Parallel()
		if _, err := exec.LookPath("go"); err != nil {
			t.Skip("this machine has no go: ", err)
		}
		p := newProject(t)
		others(p)
		p.write("proxy/example.org/dep/@v/list", "v1.0.0\n")
		p.write("proxy/example.org/dep/@v/v1.0.0.info", `{"Version": "v1.0.0"}`)
		p.write("proxy/example.org/dep/@v/v1.0.0.mod", "module example.org/dep\n")
		module(t, filepath.Join(p.home, "proxy/example.org/dep/@v/v1.0.0.zip"), map[string]string{"go.mod": "module example.org/dep\n", "dep.go": "package dep\n\nconst Who = \"as-it-was\"\n"})
		p.write("project/go.mod", "module example.org/user\n\ngo 1.21\n\nrequire example.org/dep v1.0.0\n")
		p.write("project/user.go", "package user\n\nimport \"example.org/dep\"\n\nvar Who = dep.Who\n")
		const env = `export GOPROXY=file://$HOME/proxy GOSUMDB=off GOFLAGS=-mod=mod GOTOOLCHAIN=local CGO_ENABLED=0; unset GOCACHE GOMODCACHE GOPATH; `
		const run = `clai-sandbox run --env GOPROXY --env GOSUMDB --env GOFLAGS --env GOTOOLCHAIN --env CGO_ENABLED `
		const who = `go build -o user.a . && grep -aoE "as-it-was|poisoned" user.a | sort -u`
		p.wants(p.sh(env+who), "as-it-was\n")
		p.sh(env + run + `-- sh -ec 'cd ~/go/pkg/mod
			chmod -R u+w .
			echo "package dep; const Who = \"poisoned\"" >example.org/dep@v1.0.0/dep.go
			echo poisoned >cache/download/example.org/dep/@v/v1.0.0.zip
			find ~/.cache/go-build -type f -exec sh -c "echo poisoned >\$1" sh {} \;'`)
		p.wants(p.sh(env+run+`-- sh -ec '`+who+`'`), "poisoned\n")
		p.wants(p.sh(env+run+`--agent other -- sh -ec '`+who+`'`), "as-it-was\n")
		p.wants(p.sh(env+`rm user.a; `+who+`; GOFLAGS= go mod verify`), "as-it-was\n", "all modules verified")
	})
	t.Run("npm's tarballs", func(t *testing.T) {
		t.Parallel()
		if _, err := exec.LookPath("npm"); err != nil {
			t.Skip("this machine has no npm: ", err)
		}
		p := newProject(t)
		others(p)
		p.write("dep/package.json", `{"name": "dep", "version": "1.0.0", "main": "index.js"}`)
		p.write("dep/index.js", "module.exports = 'as-it-was'")
		p.write("project/package.json", `{"name": "own", "version": "1.0.0"}`)
		// A tarball in the cache goes by its hash, and by what was asked for.
		p.sh(`cd ~/dep && npm pack --silent >/dev/null && npm cache add ./dep-1.0.0.tgz && cd ~/project && npm install --silent --offline --no-audit ~/dep/dep-1.0.0.tgz && rm -r node_modules`)
		const sums = `cd ~/.npm/_cacache/content-v2 && find . -type f -exec sha256sum {} + | sort`
		before := p.sh(sums)
		const who = `rm -rf node_modules && npm ci --silent --offline --no-audit && node -p 'require("dep")'`
		p.sh(`cat >../poison.sh <<'E'
			set -e
			cd ~
			cp -r dep /tmp/dep && cd /tmp/dep && echo "module.exports = 'poisoned'" >index.js && npm pack --silent >/dev/null
			find ~/.npm/_cacache/content-v2 -type f -exec cp dep-1.0.0.tgz {} \;
			find ~/.npm/_cacache/content-v2 -type f -exec cmp dep-1.0.0.tgz {} \;
E
			clai-sandbox run -- sh ~/poison.sh`)
		for words, same := range map[string]bool{"": false, "--agent other ": true} {
			if got := p.sh(`clai-sandbox run ` + words + `-- sh -c '` + sums + `'`); (got == before) != same {
				t.Errorf("agent %q has\n%s\nand the host had\n%s", words, got, before)
			}
		}
		if now := p.sh(sums); now != before || before == "" {
			t.Errorf("the host has\n%s\nand had\n%s", now, before)
		}
		p.wants(p.sh(`clai-sandbox run --agent other -- sh -ec '`+escaped(who)+`'`), "as-it-was\n")
		p.wants(p.sh(who), "as-it-was\n")
	})
	t.Run("pip's wheels", func(t *testing.T) {
		t.Parallel()
		if exec.Command("python3", "-c", "import pip").Run() != nil {
			t.Skip("this machine has no pip")
		}
		p := newProject(t)
		others(p)
		const name = "dep-1.0-py3-none-any.whl"
		for word, file := range map[string]string{"as-it-was": name, "poisoned!": "poisoned"} { // of one length, so that it takes the place of the other
			wheel(t, filepath.Join(p.home, file), "who = '"+word+"'\n")
		}
		fetched := atomic.Int32{} // a host that is not trusted has nothing in the cache
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if path.Base(r.URL.Path) != name {
				fmt.Fprintf(w, `<a href="/%s">%s</a>`, name, name)
				return
			}
			fetched.Add(1)
			w.Header().Set("Cache-Control", "max-age=86400")
			http.ServeFile(w, r, filepath.Join(p.home, name))
		}))
		defer server.Close()
		who := "rm -rf site; no_proxy=* python3 -m pip install --quiet --no-deps --no-compile --disable-pip-version-check --root-user-action ignore --target site --trusted-host 127.0.0.1 --index-url " +
			server.URL + " dep; cat site/dep.py"
		const sums = `cd ~/.cache/pip && find . -type f -exec sha256sum {} + | sort`
		p.wants(p.sh(who), "as-it-was")
		before := p.sh(sums)
		p.write("poison.py", `import glob, os
good, bad = (open(os.path.expanduser("~/" + n), "rb").read() for n in ("`+name+`", "poisoned"))
files = [f for f in glob.glob(os.path.expanduser("~/.cache/pip/**"), recursive=True) if os.path.isfile(f) and good in open(f, "rb").read()]
assert files
for f in files:
    text = open(f, "rb").read().replace(good, bad)
    open(f, "wb").write(text)
`)
		p.wants(p.sh(`clai-sandbox run -- sh -ec 'python3 ~/poison.py; `+who+`'`), "poisoned!")
		p.wants(p.sh(`clai-sandbox run --agent other -- sh -ec '`+who+`'`), "as-it-was")
		if now := p.sh(sums); now != before || before == "" {
			t.Errorf("the host has\n%s\nand had\n%s", now, before)
		}
		if n := fetched.Load(); n != 1 {
			t.Errorf("it was fetched %d times, and not taken out of the cache", n)
		}
	})
}

// wheel makes one of Python's packages, with one file that is not compressed.
func wheel(t *testing.T, path, text string) {
	t.Helper()
	out, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	archive := zip.NewWriter(out)
	for _, file := range [][2]string{{"dep.py", text}, {"dep-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: dep\nVersion: 1.0\n"},
		{"dep-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}, {"dep-1.0.dist-info/RECORD", ""}} {
		w, err := archive.CreateHeader(&zip.FileHeader{Name: file[0], Method: zip.Store})
		if err == nil {
			_, err = w.Write([]byte(file[1]))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
}

// escaped is a script within single quotes.
func escaped(script string) string {
	out := ""
	for _, c := range script {
		if c == '\'' {
			out += `'\''`
			continue
		}
		out += string(c)
	}
	return out
}

// module makes a module's archive.
func module(t *testing.T, path string, files map[string]string) {
	t.Helper()
	out, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	archive := zip.NewWriter(out)
	for name, text := range files {
		w, err := archive.Create("example.org/dep@v1.0.0/" + name)
		if err == nil {
			_, err = w.Write([]byte(text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
}
