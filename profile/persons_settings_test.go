package profile

import (
	"slices"
	"strings"
	"testing"
)

func TestGitsSettingsInTheEnvironmentAreRead(t *testing.T) {
	got := gitSettingsIn(map[string]string{
		"GIT_CONFIG_COUNT": "3", "GIT_CONFIG_KEY_0": "core.hooksPath", "GIT_CONFIG_VALUE_0": "/w/h", "GIT_CONFIG_KEY_1": `filter.a "b.c.clean`, "GIT_CONFIG_VALUE_1": "x\\\n\"y", "GIT_CONFIG_KEY_2": "none",
		"GIT_CONFIG_PARAMETERS": `'include.path=/w/a=b' 'alias.x'='!it'\''s /w/c'`, "VISUAL": "node tools/ed", "EDITOR": ""})
	got = append(got, gitSettingsIn(map[string]string{"GIT_CONFIG_COUNT": "-1", "GIT_CONFIG_PARAMETERS": "'"})...)
	want := []string{"[core]\n\teditor = \"node tools/ed\"\n", "[core]\n\thooksPath = \"/w/h\"\n", "[filter \"a \\\"b.c\"]\n\tclean = \"x\\\\\\n\\\"y\"\n", "[include]\n\tpath = \"/w/a=b\"\n", "[alias]\n\tx = \"!it's /w/c\"\n"}
	if !slices.Equal(got, want) {
		t.Errorf("%s\nwant %s", strings.Join(got, "---\n"), strings.Join(want, "---\n"))
	}
	if many := gitSettingsIn(map[string]string{"GIT_CONFIG_COUNT": "99999999999"}); len(many) != 0 {
		t.Errorf("%d", len(many))
	}
}
