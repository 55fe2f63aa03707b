package profile

import "testing"

func TestAnImageIsChosen(t *testing.T) {
	for _, c := range []struct {
		config, flag string
		image        string
		access       Access
	}{
		{"", "", "", NoAccess},
		{"", "debian", "debian", ReadOnly},
		{"", "debian:ro", "debian", ReadOnly},
		{"", "debian:cow", "debian", CopyOnWrite},
		{"alpine:cow", "", "alpine", CopyOnWrite},
		{"alpine:cow", "debian", "debian", ReadOnly},
		{"alpine", "host", "", NoAccess},
		{"host", "", "", NoAccess},
	} {
		text := `{}`
		if c.config != "" {
			text = `{"defaults": {"execution": {"sandbox": {"image": "` + c.config + `"}}}}`
		}
		config, err := load(t, "", text)
		if err != nil {
			t.Fatal(err)
		}
		p, err := Resolve(config, caller(), Request{Image: c.flag})
		if err != nil || p.Image != c.image || p.ImageAccess != c.access || (p.Images != "") != (c.image != "") {
			t.Errorf("%q and %q: %q %v, %v", c.config, c.flag, p.Image, p.ImageAccess, err)
		}
	}
	for _, name := range []string{"../x", "a/b", "-x", ".x", ":cow", "x:rw", "host:cow", "x\n", "ü"} {
		if _, err := Resolve(&Config{}, caller(), Request{Image: name}); err == nil {
			t.Errorf("--image %q was taken", name)
		}
		if _, err := load(t, "", `{"defaults": {"execution": {"sandbox": {"image": "`+name+`"}}}}`); err == nil {
			t.Errorf("image %q was taken", name)
		}
	}
}
