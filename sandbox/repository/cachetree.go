package repository

import (
	"bytes"
	"errors"
	"fmt"
	"sort"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// An index has the names of the trees that its entries make (TREE in gitformat-index(5)), so that
// git need not make those again. git believes them: with another name there, the person's "git
// commit" takes a tree that neither "git status" nor "git diff --cached" has shown. So each is made
// here, and must have the name that it has there.

// maxTreeWork bounds how much is compared to find where the entries of all directories begin.
const maxTreeWork = 256 << 20

var errTree = errors.New("it names trees that are not those of its entries")

type treeParser struct {
	*indexParser
	data   []byte
	path   []byte // of the directory, with a slash behind it
	text   []byte // of a tree
	worked int
}

// A cachedTree is what the extension says of one directory.
type cachedTree struct {
	count int // of entries; -1: its tree is not known
	id    []byte
}

func (p *indexParser) checkTrees(data []byte) error {
	if len(data) == 0 || data[0] != 0 {
		return nil // git takes none of it
	}
	t := treeParser{indexParser: p, data: data}
	_, _, err := t.directory()
	if err == nil && len(t.data) > 0 {
		err = errIndex
	}
	return err
}

// directory reads what is said of one directory and those in it.
func (t *treeParser) directory() (name string, tree cachedTree, err error) {
	head, data, found := bytes.Cut(t.data, []byte("\n"))
	text, numbers, found2 := bytes.Cut(head, []byte{0})
	entries, directories, found3 := strings.Cut(string(numbers), " ")
	below, err := strconv.ParseUint(directories, 10, 31)
	if !found || !found2 || !found3 || err != nil {
		return name, tree, errIndex
	}
	name = string(text)
	if tree.count, err = strconv.Atoi(entries); err != nil || tree.count < -1 {
		return name, tree, errIndex
	}
	if tree.count >= 0 {
		if len(data) < t.hash {
			return name, tree, errIndex
		}
		tree.id, data = data[:t.hash], data[t.hash:]
	}
	t.data = data
	length := len(t.path)
	defer func() { t.path = t.path[:length] }()
	if name != "" {
		t.path = append(append(t.path, name...), '/')
	} else if length > 0 {
		return name, tree, errIndex
	}
	if t.worked += len(t.path) + 64; t.worked > maxTreeWork || len(t.path) > 1<<16 || strings.Contains(name, "/") {
		return name, tree, errIndex
	}
	trees := map[string]cachedTree{}
	for range below {
		inner, is, err := t.directory()
		if _, again := trees[inner]; err != nil || again || inner == "" {
			return name, tree, errIndexOr(err)
		}
		trees[inner] = is
	}
	if tree.count >= 0 && !t.isTree(tree, trees) {
		return name, tree, errTree
	}
	return name, tree, nil
}

func errIndexOr(err error) error {
	if err == nil {
		err = errIndex
	}
	return err
}

// isTree makes the tree of a directory, and reports whether it has the name that the index says.
func (t *treeParser) isTree(tree cachedTree, trees map[string]cachedTree) bool {
	first := sort.Search(len(t.entries), func(i int) bool { return t.entries[i].name >= string(t.path) })
	entries := t.entries[first:]
	if tree.count > len(entries) {
		return false
	}
	if tree.count == 1 && len(trees) == 0 && len(t.path) > 0 && entries[0].name == string(t.path) { // kept whole in a sparse index
		return bytes.Equal(entries[0].id, tree.id)
	}
	if len(entries) > tree.count && strings.HasPrefix(entries[tree.count].name, string(t.path)) {
		return false
	}
	text := t.text[:0]
	for i := 0; i < tree.count; {
		e := entries[i]
		name, inside := strings.CutPrefix(e.name, string(t.path))
		if !inside || e.stage != 0 || e.intent {
			return false
		}
		of, _, isBelow := strings.Cut(name, "/")
		if !isBelow {
			text = append(append(append(append(strconv.AppendUint(text, uint64(e.mode), 8), ' '), name...), 0), e.id...)
			i++
			continue
		}
		sub, is := trees[of]
		if !is || sub.count <= 0 {
			return false
		}
		text = append(fmt.Appendf(text, "%o %s\x00", unix.S_IFDIR, of), sub.id...)
		if i += sub.count; i > tree.count {
			return false
		}
	}
	t.text = text
	digest := digestOf(t.hash)
	fmt.Fprintf(digest, "tree %d\x00", len(text))
	digest.Write(text)
	return bytes.Equal(digest.Sum(nil), tree.id)
}
