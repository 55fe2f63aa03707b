package changes

import (
	"crypto/sha256"
	"io"
)

const (
	maxRenames = 2000     // files that are read for it
	maxRenamed = 16 << 20 // bytes of one
)

// renames finds files that were deleted at one place and added with the same content at another. It
// is for whoever looks: both changes stay what they are.
func (r *Review) renames(w *walker) {
	deleted := map[int64][]*Change{}
	for i := range r.Changes {
		if c := &r.Changes[i]; c.Kind == Deleted && c.Type == "file" && c.Size > 0 && c.Size <= maxRenamed {
			deleted[c.Size] = append(deleted[c.Size], c)
		}
	}
	if len(deleted) == 0 {
		return
	}
	sums := map[*Change][sha256.Size]byte{}
	read := 0
	sum := func(root int, c *Change) (s [sha256.Size]byte, ok bool) {
		if s, ok = sums[c]; ok {
			return s, true
		}
		if read++; read > maxRenames || w.ctx.Err() != nil {
			return s, false
		}
		file, err := openFile(root, c.Path)
		if err != nil {
			return s, false
		}
		defer file.Close()
		hash := sha256.New()
		if _, err := io.Copy(hash, io.LimitReader(file, maxRenamed+1)); err != nil {
			return s, false
		}
		copy(s[:], hash.Sum(nil))
		sums[c] = s
		return s, true
	}
	for i := range r.Changes {
		c := &r.Changes[i]
		if c.Kind != Added || c.Type != "file" {
			continue
		}
		for _, old := range deleted[c.Size] {
			a, okA := sum(w.upper, c)
			b, okB := sum(w.lower, old)
			if okA && okB && a == b {
				c.From = old.Path
				break
			}
		}
	}
}
