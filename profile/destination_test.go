package profile

import "testing"

func TestDestinationsAreReadStrictly(t *testing.T) {
	for _, c := range []struct {
		text string
		port uint16 // where none is said
		want string // "" is an error
	}{
		{"example.com:443", 0, "example.com:443"},
		{"EXAMPLE.com.:443", 0, "example.com:443"},
		{"example.com", 80, "example.com:80"},
		{"example.com:8080", 80, "example.com:8080"},
		{"192.0.2.7:1", 0, "192.0.2.7:1"},
		{"[2001:db8::1]:443", 0, "[2001:db8::1]:443"},
		{"2001:db8::1", 80, "[2001:db8::1]:80"},
		{"bücher.example:443", 0, "xn--bcher-kva.example:443"},
		{"example.com", 0, ""},
		{"example.com:", 80, ""},
		{":443", 0, ""},
		{"", 80, ""},
		{"*.example.com:443", 0, ""},
		{"10.0.0.0/8:443", 0, ""},
		{"a@example.com:443", 0, ""},
		{"example.com:443:443", 0, ""},
		{"[::ffff:127.0.0.1]:443", 0, ""},
		{"[fe80::1%lo]:443", 0, ""},
		{"0x7f.1:443", 0, ""},
		{"2130706433:443", 0, ""},
		{"127.1:443", 0, ""},
		{"example.com\r\n:443", 0, ""},
		{"example.com:443\r\n", 0, ""},
	} {
		d, err := ParseDestination(c.text, c.port)
		if err != nil {
			if _, typed := err.(*DomainError); c.want != "" || !typed || !oneSafeLine(err.Error()) {
				t.Errorf("%q: %T %v", c.text, err, err)
			}
		} else if d.String() != c.want {
			t.Errorf("%q is %s, want %q", c.text, d, c.want)
		}
	}
}
