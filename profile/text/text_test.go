package text

import (
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestTextIsShownAsItStandsOrEscaped(t *testing.T) {
	for s, want := range map[string][2]string{ // as a value, as a line
		"":            {"", ""},
		"/home/u/a b": {"/home/u/a b", "/home/u/a b"},
		"Grüße, 世界 Ελληνικά हिन्दी ไทย": {"Grüße, 世界 Ελληνικά हिन्दी ไทย", "Grüße, 世界 Ελληνικά हिन्दी ไทย"},
		"e\u0301té":                       {"e\u0301té", "e\u0301té"},
		`say "x"; sed 's/\n/y/'`:          {`say "x"; sed 's/\n/y/'`, `say "x"; sed 's/\n/y/'`},
		"a\nb\tc\x1b[m\x7f":               {`"a\nb\tc\x1b[m\x7f"`, `a\u{A}b\u{9}c\u{1B}[m\u{7F}`},
		"a\u202eb\u2066c\u061cd":          {`"a\u202eb\u2066c\u061cd"`, `a\u{202E}b\u{2066}c\u{61C}d`},
		"\u3164\u2800\ufe0f\u115f":        {`"\u3164\u2800\ufe0f\u115f"`, `\u{3164}\u{2800}\u{FE0F}\u{115F}`},
		"a\u00a0b\u3000c\u200bd":          {`"a\u00a0b\u3000c\u200bd"`, `a\u{A0}b\u{3000}c\u{200B}d`},
		"/\u05d0/1":                       {`"/\u05d0/1"`, `/\u{5D0}/1`},
		"/\u0627\u0644/2":                 {`"/\u0627\u0644/2"`, `/\u{627}\u{644}/2`},
		"\U0001e900\U00010a00":            {`"\U0001e900\U00010a00"`, `\u{1E900}\u{10A00}`},
		"\ufb1d\ufe70\u0660":              {`"\ufb1d\ufe70\u0660"`, `\u{FB1D}\u{FE70}\u{660}`},
		"etc\u2215passwd\uff0f\uff3c":     {`"etc\u2215passwd\uff0f\uff3c"`, `etc\u{2215}passwd\u{FF0F}\u{FF3C}`},
		"a\xffb\xc3":                      {`"a\xffb\xc3"`, `a\x{FF}b\x{C3}`},
		"a\ufffdb":                        {`"a\ufffdb"`, `a\u{FFFD}b`},
		"\U000e0041\U000e0101":            {`"\U000e0041\U000e0101"`, `\u{E0041}\u{E0101}`},
		"\u0301a":                         {`"\u0301a"`, `\u{301}a`},
		"a \u0301":                        {`"a \u0301"`, `a \u{301}`},
		"a\u0301\u0302\u0303\u0304\u0305": {`"a` + "\u0301\u0302\u0303" + `\u0304\u0305"`, "a\u0301\u0302\u0303" + `\u{304}\u{305}`},
		"a\u20dd":                         {`"a\u20dd"`, `a\u{20DD}`},
		`\u202e`:                          {`"\\u202e"`, `\u202e`},
		`\u{202E}`:                        {`"\\u{202E}"`, `\u{5C}u{202E}`},
		`a\x{FF}`:                         {`"a\\x{FF}"`, `a\u{5C}x{FF}`},
		`\\u{1}`:                          {`"\\\\u{1}"`, `\\u{5C}u{1}`},
		`"\u202e"`:                        {`"\"\\u202e\""`, `"\u202e"`},
	} {
		if got := [2]string{Value(s), Line(s)}; got != want {
			t.Errorf("%q:\n%s\n%s, want\n%s\n%s", s, got[0], got[1], want[0], want[1])
		}
	}
}

// No character gets through that is no letter, sign or the usual space.
func TestEveryCharacterIsSeenOrEscaped(t *testing.T) {
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if !utf8.ValidRune(r) {
			continue
		}
		s := "a" + string(r) + "b"
		shown := Line(s) == s
		invisible := unicode.In(r, unicode.C, unicode.Z, unicode.Me, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point,
			unicode.Hebrew, unicode.Arabic, unicode.Syriac, unicode.Thaana, unicode.Nko, unicode.Adlam) && r != ' '
		if shown && (invisible || !unicode.IsPrint(r)) {
			t.Errorf("%U is shown", r)
		}
		if r < 0x7f && r >= ' ' && !shown {
			t.Errorf("%U is not shown", r)
		}
	}
}

func FuzzText(f *testing.F) {
	f.Add("a\u202e\\u{202E}", "a\\u{202E}\\u{202E}")
	f.Add(`\u202e`, "\u202e")
	f.Fuzz(func(t *testing.T, a, b string) {
		for _, s := range []string{Value(a), Line(a), Quote(a)} {
			if !utf8.ValidString(s) || !Plain(s) {
				t.Fatalf("%q comes out as %q", a, s)
			}
		}
		if back, err := strconv.Unquote(Quote(a)); err != nil || back != a {
			t.Fatalf("%q is quoted as %s: %q %v", a, Quote(a), back, err)
		}
		// Different texts look different.
		if a != b && Line(a) == Line(b) {
			t.Fatalf("%q and %q: both %q", a, b, Line(a))
		}
		if a != b && Value(a) == Value(b) && !strings.HasPrefix(Value(a), `"`) {
			t.Fatalf("%q and %q: both %q", a, b, Value(a))
		}
		if again := Line(Line(a)); !strings.Contains(Line(a), `\u{`) && !strings.Contains(Line(a), `\x{`) && again != Line(a) {
			t.Fatalf("%q comes out as %q, and that as %q", a, Line(a), again)
		}
	})
}
