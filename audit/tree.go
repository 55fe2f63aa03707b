package audit

import (
	"fmt"
	"math/bits"

	"golang.org/x/mod/sumdb/tlog"
)

// A tree is the Merkle tree over the lines (RFC 6962), as far as it is needed to add one and to
// name its root: the hashes of the whole subtrees at its right edge.
type tree struct {
	size   int64 // lines
	hashes map[int64]tlog.Hash
	all    bool // keep every hash, for proofs
}

// ReadHashes is tlog.HashReader.
func (t *tree) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	list := make([]tlog.Hash, len(indexes))
	for i, index := range indexes {
		hash, found := t.hashes[index]
		if !found {
			return nil, fmt.Errorf("what is needed of the lines before is not in the log any more")
		}
		list[i] = hash
	}
	return list, nil
}

// add adds a line, without its end.
func (t *tree) add(line []byte) error {
	hashes, err := tlog.StoredHashesForRecordHash(t.size, tlog.RecordHash(line), t)
	if err != nil {
		return err
	}
	if t.hashes == nil {
		t.hashes = map[int64]tlog.Hash{}
	}
	at := tlog.StoredHashIndex(0, t.size)
	for i, hash := range hashes {
		t.hashes[at+int64(i)] = hash
	}
	t.size++
	if t.all {
		return nil
	}
	edge, err := t.ReadHashes(edgeIndexes(t.size))
	t.hashes = edgeOf(t.size, edge)
	return err
}

func (t *tree) root() (tlog.Hash, error) { return tlog.TreeHash(t.size, t) }

// edge is the hashes at the right edge, of the largest subtree first.
func (t *tree) edge() ([]tlog.Hash, error) { return t.ReadHashes(edgeIndexes(t.size)) }

// edgeIndexes are the places of the whole subtrees that make up a tree of that size.
func edgeIndexes(size int64) (list []int64) {
	for level := bits.Len64(uint64(size)) - 1; level >= 0; level-- {
		if size>>level&1 == 1 {
			list = append(list, tlog.StoredHashIndex(level, size>>level-1))
		}
	}
	return list
}

func edgeOf(size int64, edge []tlog.Hash) map[int64]tlog.Hash {
	hashes := map[int64]tlog.Hash{}
	for i, index := range edgeIndexes(size) {
		if i < len(edge) {
			hashes[index] = edge[i]
		}
	}
	return hashes
}
