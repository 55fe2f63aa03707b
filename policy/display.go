package policy

import shown "github.com/clairun/clai-sandbox/profile/text"

// DisplayText is text for a prompt, a page or a log: what cannot be seen, or turns the text around,
// comes out as an escape.
func DisplayText(s string) string { return shown.Line(s) }
