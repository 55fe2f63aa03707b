package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// What a command runs is in files as well as in its words. An approval, once or always, holds for
// what those files were.

const contentPrefix = "sha256:"

// files are the files of code of a command and of those within it, by their real paths, with their
// words' places. All says that there are no others, as far as can be told.
func (c *Command) files(m *Machine) (list []boundFile, all bool) {
	all = !c.opaque && !c.unbound
	add := func(path string, index int) {
		sum, err := "", error(nil)
		if path != "" {
			sum, err = m.Files.Hash(path)
		}
		if path == "" || err != nil {
			all = false
			return
		}
		if !slices.ContainsFunc(list, func(have boundFile) bool { return have.Path == path }) {
			list = append(list, boundFile{index, path, sum})
		}
	}
	place := len(c.Argv) - len(c.inner)
	if real := c.Executable.Real; real != "" && !m.trusts(real) {
		add(real, place)
	}
	if c.Script != "" {
		add(c.Script, place+c.scriptAt)
	}
	for _, word := range c.reads {
		add(m.script(word, c.cwd), place+max(0, slices.Index(c.inner, word)))
	}
	for _, name := range c.projectFiles(m) {
		add(name, place)
	}
	for _, inner := range c.Inner {
		more, ok := inner.files(m)
		all = all && ok
		for _, f := range more {
			if !slices.ContainsFunc(list, func(have boundFile) bool { return have.Path == f.Path }) {
				list = append(list, f)
			}
		}
	}
	return list, all
}

// projectFiles are those that a program reads without being told: make its makefile, npm the
// package's.
func (c *Command) projectFiles(m *Machine) (list []string) {
	if c.Executable.Real == "" || len(c.inner) == 0 {
		return nil
	}
	p := programOf(baseOf(c.Executable.Word))
	if p == nil {
		p = programOf(baseOf(c.Executable.Real))
	}
	if p == nil || len(p.files) == 0 {
		return nil
	}
	dir := c.cwd
	arguments, _, _ := p.options(c.inner[1:])
	for _, a := range arguments {
		if a.option != nil && a.hasValue && (a.option.name == "-C" || a.option.name == "--directory") {
			if dir = a.value; !filepath.IsAbs(dir) {
				dir = c.cwd + "/" + a.value
			}
		}
	}
	for _, name := range p.files {
		if path := m.script(dir+"/"+name, ""); path != "" {
			list = append(list, path)
		}
	}
	return list
}

// contentOf is one hash for what several files hold; empty for none.
func contentOf(files []boundFile) string {
	if len(files) == 0 {
		return ""
	}
	lines := make([]string, len(files))
	for i, f := range files {
		lines[i] = strconv.Itoa(len(f.Path)) + ":" + f.Path + " " + f.SHA256
	}
	slices.Sort(lines)
	sum := sha256.Sum256([]byte(strings.Join(lines, "\n")))
	return contentPrefix + hex.EncodeToString(sum[:])
}

// content is that of all commands of a line. Of a line that was not taken apart, it is that of
// every program and script among its words.
func (r *Evaluation) content(m *Machine, text, cwd string) string {
	var files []boundFile
	for _, c := range r.Commands {
		more, _ := c.files(m)
		files = append(files, more...)
	}
	if r.Refusal != nil || r.Opaque {
		files = append(files, filesIn(m, text, cwd)...)
	}
	slices.SortFunc(files, func(a, b boundFile) int { return strings.Compare(a.Path, b.Path) })
	return contentOf(slices.CompactFunc(files, func(a, b boundFile) bool { return a.Path == b.Path }))
}

// filesIn looks for files of code in a line that was not taken apart: what may be executed, and
// what stands behind an interpreter.
func filesIn(m *Machine, text, cwd string) (list []boundFile) {
	words := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" \t\n;|&()`'\"<>{}=$", r) })
	if len(words) > maxWords {
		words = words[:maxWords]
	}
	code := false
	for i, word := range words {
		path := ""
		if strings.Contains(word, "/") || code {
			path = m.script(word, cwd)
		}
		p := programOf(baseOf(word))
		behind := code && !strings.HasPrefix(word, "-")
		code = p != nil && (p.operands == "script" || p.asks != "") || isShell(baseOf(word)) || isWrapper(baseOf(word)) || code && (strings.HasPrefix(word, "-") || i == 0)
		if path == "" || m.trusts(path) || len(list) == maxSegments {
			continue
		}
		if kind, err := m.Files.Stat(path); err == nil && (kind == fileExecutable || behind) {
			if sum, err := m.Files.Hash(path); err == nil {
				list = append(list, boundFile{i, path, sum})
			}
		}
	}
	return list
}
