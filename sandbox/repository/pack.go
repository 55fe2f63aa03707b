package repository

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"hash"
	"io"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	maxPackIndex = 1 << 30
	// maxInflated bounds what of a pack is in memory at a time: what others are made of.
	maxInflated = 1 << 30
	// mostInflated is how many bytes one byte can become (zlib's manual: 1032).
	mostInflated = 1040
	noEntry      = -1
	// leastSpeed is how many bytes of a pack are looked through in a second at least: a larger pack
	// may take longer, up to mostLonger.
	leastSpeed = 4 << 20
	mostLonger = 10 * time.Minute
)

// A packEntry is an object in a pack (gitformat-pack(5)).
type packEntry struct {
	at     int64 // where it begins
	size   int64 // of what is inflated
	name   int32 // its place in the index
	base   int32 // what it is made of, or noEntry
	first  int32 // of those that are made of it
	next   int32 // of those that are made of the same
	header int32 // how long the header is
	kind   byte
}

const (
	offsetDelta = 6
	nameDelta   = 7
)

var kinds = [8]string{1: "commit", 2: "tree", 3: "blob", 4: "tag"}

// packCheck is one pack that is looked through.
type packCheck struct {
	pack     *os.File
	index    *packIndex
	entries  []packEntry // by where they are
	until    time.Time
	room     int64 // how much may be in memory
	inMemory atomic.Int64
	checked  atomic.Int64
}

// errNoRoom means that more would have to be in memory than there is room for.
var errNoRoom = errPack("too much would have to be in memory at a time")

// checkPack says what is wrong with a pack, of which the index is called stem.idx. git goes to
// where the index says that an object is, and to what that names as its base. So each object that
// the index has is made as git makes it, and must have the name that it has there. Whether all
// objects are there, and in order, does not matter: git does not find the others.
func checkPack(dirs []int, stem string, until time.Time, room int64) error {
	file, err := openFirst(dirs, stem+".idx", maxPackIndex)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	pack, err := openFirst(dirs, stem+".pack", math.MaxInt64)
	if errors.Is(err, unix.ENOENT) {
		return nil // looked at when it comes
	}
	if err != nil {
		return err
	}
	defer pack.Close()
	text, err := readAll(file, maxPackIndex)
	if err != nil {
		return err
	}
	c := packCheck{pack: pack, room: room}
	if c.until, err = longer(until, pack); err != nil {
		return err
	}
	if c.index, err = parsePackIndex([]byte(text)); err != nil {
		return err
	}
	if err = c.read(); err != nil {
		return err
	}
	return c.all()
}

// longer is until when a pack may be looked through. What is a hole in the file takes no time, as
// nothing is in it.
func longer(until time.Time, pack *os.File) (time.Time, error) {
	var stat unix.Stat_t
	if err := unix.Fstat(int(pack.Fd()), &stat); err != nil {
		return until, err
	}
	return until.Add(min(time.Duration(min(stat.Size, stat.Blocks*512)/leastSpeed)*time.Second, mostLonger)), nil
}

// A packIndex is a table of names and where their objects are.
type packIndex struct {
	data         []byte
	count        int
	length       int // of a name
	names, step  int // where the first name is, and how far it is to the next
	places, wide int // where the tables of offsets are; wide: of those of 8 bytes
	version      int
}

// parsePackIndex finds the tables. How long names are follows from how long the file is, as only
// one length fits. git looks whether that of the repository does.
func parsePackIndex(data []byte) (*packIndex, error) {
	const fanout = 4 * 256
	for _, length := range []int{20, 32} {
		switch {
		case len(data) >= 8+fanout && bytes.HasPrefix(data, []byte("\xfftOc\x00\x00\x00\x02")):
			count := int(binary.BigEndian.Uint32(data[8+fanout-4:]))
			least := 8 + fanout + count*(length+4+4) + 2*length
			if len(data) < least || len(data) > least+8*max(0, count-1) {
				continue
			}
			names := 8 + fanout
			places := names + count*(length+4)
			return &packIndex{data: data[:len(data)-2*length], count: count, length: length, names: names, step: length, places: places, wide: places + 4*count, version: 2}, nil
		case len(data) >= fanout:
			count := int(binary.BigEndian.Uint32(data[fanout-4:]))
			if len(data) == fanout+count*(4+length)+2*length {
				return &packIndex{data: data, count: count, length: length, names: fanout + 4, step: 4 + length, version: 1}, nil
			}
		}
	}
	return nil, errPack("the index cannot be read")
}

func (x *packIndex) name(i int32) []byte {
	at := x.names + int(i)*x.step
	return x.data[at : at+x.length]
}

func (x *packIndex) offset(i int) (int64, error) {
	if x.version == 1 {
		return int64(binary.BigEndian.Uint32(x.data[x.names+i*x.step-4:])), nil
	}
	at := int64(binary.BigEndian.Uint32(x.data[x.places+4*i:]))
	if at&(1<<31) == 0 {
		return at, nil
	}
	wide := x.wide + 8*int(at&^(1<<31))
	if wide+8 > len(x.data) {
		return 0, errPack("the index cannot be read")
	}
	at = int64(binary.BigEndian.Uint64(x.data[wide:]))
	if at < 0 {
		return 0, errPack("the index cannot be read")
	}
	return at, nil
}

// read reads where each object begins, and what it is made of.
func (c *packCheck) read() error {
	c.entries = make([]packEntry, c.index.count)
	for i := range c.entries {
		at, err := c.index.offset(i)
		if err != nil {
			return err
		}
		c.entries[i] = packEntry{at: at, name: int32(i), base: noEntry, first: noEntry, next: noEntry}
	}
	slices.SortFunc(c.entries, func(a, b packEntry) int { return cmp.Compare(a.at, b.at) })
	info, err := c.pack.Stat()
	if err != nil {
		return err
	}
	names := sync.OnceValue(c.byName)
	window := window{of: c.pack}
	for i := range c.entries {
		e := &c.entries[i]
		if i%1024 == 0 && time.Now().After(c.until) {
			return ErrLate
		}
		head, err := window.at(e.at)
		if err != nil {
			return err
		}
		base, err := e.parse(head, c.index.length)
		if err != nil {
			return err
		}
		if left := info.Size() - e.at; left < 0 || e.size/mostInflated > left {
			return errPack("an object is cut off")
		}
		switch {
		case e.kind == nameDelta:
			at, found := names()[string(base)]
			if !found {
				return errPack("an object is made of one that is not there")
			}
			e.base = at
		case e.kind == offsetDelta:
			from := e.at - int64(binary.BigEndian.Uint64(base))
			at, found := slices.BinarySearchFunc(c.entries[:i], from, func(e packEntry, at int64) int { return cmp.Compare(e.at, at) })
			if !found {
				return errPack("an object is made of one that is not there")
			}
			e.base = int32(at)
		}
	}
	for i := range c.entries {
		if e := &c.entries[i]; e.base != noEntry {
			e.next = c.entries[e.base].first
			c.entries[e.base].first = int32(i)
		}
	}
	return nil
}

// byName are the entries by their names: few packs on a disk need that.
func (c *packCheck) byName() map[string]int32 {
	names := make(map[string]int32, len(c.entries))
	for i := range c.entries {
		names[string(c.index.name(c.entries[i].name))] = int32(i)
	}
	return names
}

// parse reads an entry's header. What it is made of is a name, or 8 bytes that say how far back
// that is.
func (e *packEntry) parse(head []byte, length int) (base []byte, err error) {
	at := 0
	next := func() (b byte) {
		if at < len(head) {
			b = head[at]
		}
		at++
		return b
	}
	b := next()
	e.kind, e.size = b>>4&7, int64(b&15)
	for shift := 4; b&0x80 != 0; shift += 7 {
		if b = next(); shift > 53 {
			return nil, errPack("an object is too long")
		}
		e.size |= int64(b&0x7f) << shift
	}
	switch {
	case e.kind == nameDelta:
		if at+length <= len(head) {
			base = head[at : at+length]
		}
		at += length
	case e.kind == offsetDelta:
		b = next()
		back := int64(b & 0x7f)
		for b&0x80 != 0 {
			if b = next(); back > 1<<54 {
				return nil, errPack("an object is made of one that is not there")
			}
			back = (back+1)<<7 | int64(b&0x7f)
		}
		base = binary.BigEndian.AppendUint64(nil, uint64(back))
	case kinds[e.kind] == "":
		return nil, errPack("an object is of no kind")
	}
	if at > len(head) {
		return nil, errPack("an object is cut off")
	}
	e.header = int32(at)
	return base, nil
}

// A window is a part of a file that is read from its beginning to its end.
type window struct {
	of     *os.File
	begins int64
	data   []byte
}

// maxHeader is how long an entry's header can be.
const maxHeader = 10 + 32

// at is what is at a place, as far as a header may reach.
func (w *window) at(place int64) ([]byte, error) {
	if from := place - w.begins; w.data == nil || from < 0 || from+maxHeader > int64(len(w.data)) {
		if w.data == nil {
			w.data = make([]byte, 256<<10)
		}
		n, err := w.of.ReadAt(w.data[:cap(w.data)], place)
		if err != nil && err != io.EOF {
			return nil, err
		}
		w.begins, w.data = place, w.data[:n]
	}
	from := min(place-w.begins, int64(len(w.data)))
	return w.data[from:min(from+maxHeader, int64(len(w.data)))], nil
}

// all makes each object and looks at its name, on several processors. What they have no room for
// together is done after, one by one.
func (c *packCheck) all() error {
	var next atomic.Int64
	var group sync.WaitGroup
	workers := min(runtime.GOMAXPROCS(0), 8, len(c.entries)/64+1)
	failed := make(chan error, workers)
	var lock sync.Mutex
	var left []int32
	for range workers {
		group.Go(func() {
			r := c.reader()
			for {
				i := next.Add(1) - 1
				if i >= int64(len(c.entries)) {
					return
				}
				if c.entries[i].base != noEntry {
					continue
				}
				switch err := r.tree(int32(i)); err {
				case nil:
				case errNoRoom:
					lock.Lock()
					left = append(left, int32(i))
					lock.Unlock()
				default:
					next.Store(int64(len(c.entries)))
					failed <- err
					return
				}
			}
		})
	}
	group.Wait()
	close(failed)
	if err := <-failed; err != nil {
		return err
	}
	alone := c.reader()
	alone.forgets = true
	for _, root := range left {
		if err := alone.tree(root); err != nil {
			return err
		}
	}
	if c.checked.Load() != int64(len(c.entries)) {
		return errPack("objects are made of one another")
	}
	return nil
}

func (c *packCheck) reader() *packReader {
	return &packReader{check: c, source: bufio.NewReaderSize(nil, 16<<10), digest: digestOf(c.index.length)}
}

// A packReader makes objects.
type packReader struct {
	check   *packCheck
	source  *bufio.Reader
	inflate io.ReadCloser
	digest  hash.Hash
	delta   []byte
	held    int64 // how much of what is in memory is this one's
	checked int64 // how many objects of the tree have their names
	// forgets says that what has no room is forgotten and made once more, in place of errNoRoom.
	forgets bool
	stack   []packObject
}

// A packObject has others that are made of it.
type packObject struct {
	entry int32
	data  []byte // nil: forgotten
	next  int32  // of those
}

// tree makes an object, and all that are made of it. An object is forgotten when the last that is
// made of it was.
func (r *packReader) tree(root int32) error {
	c := r.check
	e := &c.entries[root]
	r.stack, r.checked = r.stack[:0], 0
	defer func() { r.give(r.held) }()
	if e.first == noEntry {
		if err := r.plain(e); err != nil {
			return err
		}
		c.checked.Add(r.checked)
		return nil
	}
	data, err := r.inflated(e, nil)
	if err != nil {
		return err
	}
	if err = r.is(e, e.kind, data); err != nil {
		return err
	}
	for r.stack = append(r.stack, packObject{root, data, e.first}); len(r.stack) > 0; {
		if time.Now().After(c.until) {
			return ErrLate
		}
		top := &r.stack[len(r.stack)-1]
		if top.data == nil {
			if top.data, err = r.again(top.entry); err != nil {
				return err
			}
		}
		base, at := top.data, top.next
		child := &c.entries[at]
		top.next = child.next
		made, err := r.made(base, child)
		if err != nil {
			return err
		}
		if err = r.is(child, e.kind, made); err != nil {
			return err
		}
		if top.next == noEntry {
			r.stack = r.stack[:len(r.stack)-1]
			r.give(int64(len(base)))
		}
		if child.first != noEntry {
			r.stack = append(r.stack, packObject{at, made, child.first})
		} else {
			r.give(int64(len(made)))
		}
	}
	c.checked.Add(r.checked)
	return nil
}

// made is an object that is made of base.
func (r *packReader) made(base []byte, e *packEntry) (_ []byte, err error) {
	if r.delta, err = r.inflated(e, r.delta[:0]); err != nil {
		return nil, err
	}
	r.give(int64(len(r.delta)))
	return r.apply(base, r.delta)
}

// again makes an object that was forgotten, from where its line begins.
func (r *packReader) again(entry int32) ([]byte, error) {
	var line []int32
	for i := entry; i != noEntry; i = r.check.entries[i].base {
		line = append(line, i)
	}
	data, err := r.inflated(&r.check.entries[line[len(line)-1]], nil)
	for i := len(line) - 2; i >= 0 && err == nil; i-- {
		var next []byte
		if time.Now().After(r.check.until) {
			return nil, ErrLate
		}
		next, err = r.made(data, &r.check.entries[line[i]])
		r.give(int64(len(data)))
		data = next
	}
	return data, err
}

// begin begins to inflate an entry.
func (r *packReader) begin(e *packEntry) error {
	r.source.Reset(io.NewSectionReader(r.check.pack, e.at+int64(e.header), math.MaxInt64-e.at-int64(e.header)))
	inflate, err := inflating(r.inflate, r.source)
	if err == nil {
		r.inflate = inflate
	}
	return err
}

// take makes room for more in memory.
func (r *packReader) take(size int64) error {
	c := r.check
	if size <= c.room {
		if c.inMemory.Add(size) > c.room && r.forgets {
			for i := range max(0, len(r.stack)-1) { // the last one is being used
				r.give(int64(len(r.stack[i].data)))
				r.stack[i].data = nil
			}
		}
		if r.held += size; c.inMemory.Load() <= c.room {
			return nil
		}
		r.give(size)
	}
	return errNoRoom
}

// give says that as much is no longer used.
func (r *packReader) give(size int64) {
	r.held -= size
	r.check.inMemory.Add(-size)
}

// inflated is what an entry holds.
func (r *packReader) inflated(e *packEntry, into []byte) ([]byte, error) {
	if err := r.take(e.size); err != nil {
		return nil, err
	}
	if err := r.begin(e); err != nil {
		return nil, err
	}
	data := slices.Grow(into, int(e.size))[:e.size]
	if _, err := io.ReadFull(r.inflate, data); err != nil {
		return nil, err
	}
	return data, r.end()
}

// end makes sure that there is no more.
func (r *packReader) end() error {
	if n, err := r.inflate.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		return errPack("an object is longer than it says")
	}
	return nil
}

func (r *packReader) name(kind byte, size int64) {
	r.digest.Reset()
	r.digest.Write(append(strconv.AppendInt(append([]byte(kinds[kind]), ' '), size, 10), 0))
}

func (r *packReader) named(e *packEntry) error {
	var sum [64]byte
	if !bytes.Equal(r.digest.Sum(sum[:0]), r.check.index.name(e.name)) {
		return errObject
	}
	r.checked++
	return nil
}

// is looks whether an object has the name that the index gives it.
func (r *packReader) is(e *packEntry, kind byte, data []byte) error {
	r.name(kind, int64(len(data)))
	r.digest.Write(data)
	return r.named(e)
}

// plain is is for an object of which no other is made.
func (r *packReader) plain(e *packEntry) error {
	if err := r.begin(e); err != nil {
		return err
	}
	r.name(e.kind, e.size)
	n, err := io.Copy(r.digest, timed{io.LimitReader(r.inflate, e.size), r.check.until})
	if err == nil && n != e.size {
		err = io.ErrUnexpectedEOF
	}
	if err == nil {
		err = r.end()
	}
	if err != nil {
		return err
	}
	return r.named(e)
}

// apply makes an object of another one.
func (r *packReader) apply(base, delta []byte) ([]byte, error) {
	from, delta, err := deltaSize(delta)
	if err != nil || from != int64(len(base)) {
		return nil, errPack("an object is made of one of another length")
	}
	size, delta, err := deltaSize(delta)
	if err != nil {
		return nil, err
	}
	if err = r.take(size); err != nil {
		return nil, err
	}
	made := make([]byte, 0, size)
	for len(delta) > 0 {
		op := delta[0]
		delta = delta[1:]
		var part []byte
		if op&0x80 == 0 { // what is new
			if op == 0 || int(op) > len(delta) {
				return nil, errPack("what makes an object of another one cannot be read")
			}
			part, delta = delta[:op], delta[op:]
		} else { // a part of the base: which of seven bytes are there, the bits say
			var number [7]byte
			for i := range number {
				if op&(1<<i) == 0 {
					continue
				}
				if len(delta) == 0 {
					return nil, errPack("what makes an object of another one cannot be read")
				}
				number[i], delta = delta[0], delta[1:]
			}
			at := int64(binary.LittleEndian.Uint32(number[:4]))
			length := int64(number[4]) | int64(number[5])<<8 | int64(number[6])<<16
			if length == 0 {
				length = 0x10000
			}
			if at+length > int64(len(base)) {
				return nil, errPack("what makes an object of another one cannot be read")
			}
			part = base[at : at+length]
		}
		if len(made)+len(part) > cap(made) || int64(len(made)+len(part)) > size {
			return nil, errPack("an object is longer than it says")
		}
		made = append(made, part...)
	}
	if int64(len(made)) != size {
		return nil, errPack("an object is shorter than it says")
	}
	return made, nil
}

// deltaSize takes a length off what makes one object of another one.
func deltaSize(delta []byte) (size int64, rest []byte, err error) {
	for shift := 0; ; shift += 7 {
		if len(delta) == 0 || shift > 56 {
			return 0, nil, errPack("what makes an object of another one cannot be read")
		}
		b := delta[0]
		delta = delta[1:]
		size |= int64(b&0x7f) << shift
		if b&0x80 == 0 {
			return size, delta, nil
		}
	}
}
