package policy

import "testing"

func TestTheTablesCanBeRead(t *testing.T) {
	if n := len(programs()); n < 300 {
		t.Errorf("only %d programs", n)
	}
}
