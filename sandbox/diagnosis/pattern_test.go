package diagnosis

import "testing"

// What is compiled only when it is needed has to compile.
func TestThePatternsAreExpressions(t *testing.T) {
	for _, p := range append(append([]*pattern{wrapping, nodesFields, nodesCounts}, unresolved...), missing...) {
		p.compiled()
	}
}
