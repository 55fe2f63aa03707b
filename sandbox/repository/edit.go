package repository

import (
	"slices"
	"strings"
)

// How a document is changed: what nobody asked to change stays, byte for byte, comments above all.

// find returns where the variables of a key are.
func (d document) find(key string) []int {
	var list []int
	for i := range d {
		if d[i].kind == variable && d[i].key() == key {
			list = append(list, i)
		}
	}
	return list
}

// set gives a key these values and no others. name is the key's last part as it is to be spelled.
func (d *document) set(key, name string, values []string) {
	at := d.find(key)
	both := min(len(at), len(values))
	for i := range both {
		if p := &(*d)[at[i]]; p.value != values[i] {
			p.raw = spelled(p.raw) + " = " + writeValue(values[i]) + "\n"
			p.value = values[i]
		}
	}
	for _, i := range slices.Backward(at[both:]) {
		d.remove(i)
	}
	for _, value := range values[both:] {
		d.add(key, name, value)
	}
}

// spelled is the name of a variable as it stands in the file.
func spelled(raw string) string {
	return raw[:len(raw)-len(strings.TrimLeftFunc(raw, func(r rune) bool { return r < 0x80 && isKeyChar(byte(r)) }))]
}

// remove takes a variable out, with its lines, and the head of a section in which nothing is left.
func (d *document) remove(i int) {
	list := *d
	ownLine := i == 0 || list[i-1].kind == variable
	if i > 0 && list[i-1].kind == between {
		before := &list[i-1]
		if at := strings.LastIndexByte(before.raw, '\n'); at >= 0 || i == 1 || list[i-2].kind != head {
			before.raw, ownLine = before.raw[:at+1], true
		}
	}
	if ownLine {
		list = slices.Delete(list, i, i+1)
	} else { // it is behind the head of its section
		list[i] = piece{raw: "\n"}
	}
	h := i - 1
	for h >= 0 && list[h].kind != head {
		h--
	}
	end := h + 1
	for end < len(list) && list[end].kind == between && strings.TrimSpace(list[end].raw) == "" {
		end++
	}
	if h >= 0 && (end == len(list) || list[end].kind == head) {
		list = slices.Delete(list, h, end)
	}
	*d = list
}

// add adds a variable to the last section of its name, or adds one.
func (d *document) add(key, name, value string) {
	section := sectionOf(key)
	p := piece{kind: variable, section: section, name: nameOf(key), value: value, raw: name + " = " + writeValue(value) + "\n"}
	list := *d
	at := len(list) - 1
	for at >= 0 && !(list[at].kind == head && list[at].section == section) {
		at--
	}
	if at < 0 {
		if n := len(list); n > 0 && !strings.HasSuffix(list[n-1].raw, "\n") {
			list = append(list, piece{raw: "\n"})
		}
		*d = append(list, piece{kind: head, section: section, raw: writeHead(section)}, piece{raw: "\n\t"}, p)
		return
	}
	for i := at + 1; i < len(list) && list[i].kind != head; i++ {
		if list[i].kind == variable {
			at = i
		}
	}
	if list[at].kind == variable {
		if !strings.HasSuffix(list[at].raw, "\n") {
			list[at].raw += "\n"
		}
		*d = slices.Insert(list, at+1, piece{raw: "\t"}, p)
		return
	}
	if next := at + 1; next < len(list) && list[next].kind == between {
		if line, rest, found := strings.Cut(list[next].raw, "\n"); found && strings.TrimSpace(line) == "" {
			list[next].raw = rest
		}
	}
	*d = slices.Insert(list, at+1, piece{raw: "\n\t"}, p)
}

// rename gives a section another name.
func (d document) rename(from, to string) {
	for i := range d {
		if d[i].section == from {
			if d[i].section = to; d[i].kind == head {
				d[i].raw = writeHead(to)
			}
		}
	}
}
