package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"github.com/clairun/clai-sandbox/grants"
)

// bbolt's pages. Each has a header: its number (8 bytes), flags (2), a count of elements (2), and
// how many further pages belong to it (4). What elements point to is counted from their own first
// byte.
const (
	pageHeader = 16
	element    = 16

	branchFlag   = 0x01
	leafFlag     = 0x02
	freelistFlag = 0x10
	bucketFlag   = 0x01 // of a leaf's element: its value is a bucket

	bucketHeader = 16 // of a bucket's value: the number of its root page, or 0 and the page follows; and a sequence number
	noFreelist   = ^uint64(0)
)

// checkPages looks at the structure of a whole database before bbolt does. bbolt maps the file and
// believes it: a page that points to itself sends it round for ever, one that points out of the
// file ends the process. Every page has to be where the structure says, once, with its elements
// inside it and its keys in order.
func checkPages(path string) error {
	state, err := grants.ReadDatabaseState(path)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if state.PageSize < 1024 || state.PageSize > 1<<16 || state.Pages > uint64(len(text))/uint64(state.PageSize) {
		return fmt.Errorf("%d pages of %d bytes are in use, and it has %d bytes", state.Pages, state.PageSize, len(text))
	}
	c := pageCheck{text: text, size: uint64(state.PageSize), pages: state.Pages, seen: make([]bool, state.Pages)}
	c.seen[0], c.seen[1] = true, true
	if err := c.tree(state.Root, nil, nil, 0); err != nil {
		return err
	}
	if err := c.freelist(state.Freelist); err != nil {
		return err
	}
	for number, seen := range c.seen {
		if !seen {
			return fmt.Errorf("page %d is neither used nor free", number)
		}
	}
	return nil
}

type pageCheck struct {
	text        []byte
	size, pages uint64
	seen        []bool
}

// maxDepth bounds buckets in buckets and branches below branches; a database of ours has less than
// ten.
const maxDepth = 64

var order = binary.NativeEndian

// page returns a page with those that belong to it, and marks them as seen.
func (c *pageCheck) page(number uint64) ([]byte, error) {
	if number < 2 || number >= c.pages {
		return nil, fmt.Errorf("there is no page %d", number)
	}
	page := c.text[number*c.size:]
	more := uint64(order.Uint32(page[12:]))
	if order.Uint64(page) != number || number+more >= c.pages {
		return nil, fmt.Errorf("page %d is not itself", number)
	}
	for i := number; i <= number+more; i++ {
		if c.seen[i] {
			return nil, fmt.Errorf("page %d is used twice", i)
		}
		c.seen[i] = true
	}
	return page[:(more+1)*c.size], nil
}

// tree checks a page and all below it. Its keys are low or above, and below high; nil is no limit.
func (c *pageCheck) tree(number uint64, low, high []byte, depth int) error {
	page, err := c.page(number)
	if err != nil {
		return err
	}
	if err := c.elements(page, low, high, depth); err != nil {
		return fmt.Errorf("page %d: %w", number, err)
	}
	return nil
}

func (c *pageCheck) elements(page, low, high []byte, depth int) error {
	if depth > maxDepth {
		return errors.New("deeper than any of ours")
	}
	if len(page) < pageHeader {
		return errors.New("shorter than its header")
	}
	count := int(order.Uint16(page[10:]))
	if pageHeader+count*element > len(page) {
		return errors.New("more elements than room")
	}
	switch order.Uint16(page[8:]) {
	case branchFlag:
		return c.branch(page, count, low, high, depth)
	case leafFlag:
		return c.leaf(page, count, low, high, depth)
	}
	return errors.New("neither a branch nor a leaf")
}

func (c *pageCheck) branch(page []byte, count int, low, high []byte, depth int) error {
	if count == 0 {
		return errors.New("a branch to nothing")
	}
	keys := make([][]byte, count+1)
	keys[count] = high
	for i := range count {
		at := pageHeader + i*element
		key, err := span(page, at, order.Uint32(page[at:]), order.Uint32(page[at+4:]))
		if err != nil {
			return err
		}
		keys[i] = key
	}
	if low != nil && bytes.Compare(keys[0], low) < 0 {
		return errors.New("a key before its page's")
	}
	for i := range count {
		if keys[i+1] != nil && bytes.Compare(keys[i], keys[i+1]) >= 0 {
			return errors.New("keys out of order")
		}
		if err := c.tree(order.Uint64(page[pageHeader+i*element+8:]), keys[i], keys[i+1], depth+1); err != nil {
			return err
		}
	}
	return nil
}

func (c *pageCheck) leaf(page []byte, count int, low, high []byte, depth int) error {
	last := low
	for i := range count {
		at := pageHeader + i*element
		flags, pos, keySize, size := order.Uint32(page[at:]), order.Uint32(page[at+4:]), order.Uint32(page[at+8:]), order.Uint32(page[at+12:])
		key, err := span(page, at, pos, keySize)
		if err != nil {
			return err
		}
		if last != nil {
			if n := bytes.Compare(key, last); n < 0 || n == 0 && i > 0 {
				return errors.New("keys out of order")
			}
		}
		if high != nil && bytes.Compare(key, high) >= 0 {
			return errors.New("a key behind its page's")
		}
		last = key
		value, err := span(page, at, pos+keySize, size)
		if err != nil {
			return err
		}
		switch flags {
		case 0:
		case bucketFlag:
			if err := c.bucket(value, depth); err != nil {
				return fmt.Errorf("bucket %x: %w", key, err)
			}
		default:
			return errors.New("an element of no known kind")
		}
	}
	return nil
}

func (c *pageCheck) bucket(value []byte, depth int) error {
	if len(value) < bucketHeader {
		return errors.New("shorter than its header")
	}
	if root := order.Uint64(value); root != 0 {
		return c.tree(root, nil, nil, depth+1)
	}
	inline := value[bucketHeader:]
	if len(inline) < pageHeader || order.Uint16(inline[8:]) != leafFlag {
		return errors.New("is not a leaf")
	}
	return c.elements(inline, nil, nil, depth+1)
}

// span is what an element that begins at a place of a page points to.
func span(page []byte, at int, pos, size uint32) ([]byte, error) {
	from := uint64(at) + uint64(pos)
	if from+uint64(size) > uint64(len(page)) {
		return nil, errors.New("an element leads out of its page")
	}
	return page[from : from+uint64(size)], nil
}

func (c *pageCheck) freelist(number uint64) error {
	if number == noFreelist {
		return errors.New("it has no list of free pages")
	}
	page, err := c.page(number)
	if err != nil {
		return err
	}
	if order.Uint16(page[8:]) != freelistFlag {
		return fmt.Errorf("page %d is not the list of free pages", number)
	}
	count, ids := uint64(order.Uint16(page[10:])), page[pageHeader:]
	if count == 0xFFFF {
		count, ids = order.Uint64(ids), ids[8:]
	}
	if count > uint64(len(ids))/8 {
		return errors.New("more free pages than their list holds")
	}
	for i := range count {
		id := order.Uint64(ids[i*8:])
		if id < 2 || id >= c.pages || c.seen[id] {
			return fmt.Errorf("page %d is free and used", id)
		}
		c.seen[id] = true
	}
	return nil
}
