package cli

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Colours of a terminal. What means the same has the same one everywhere.
const (
	plain  = ""
	dim    = "2"
	bold   = "1"
	red    = "31"
	green  = "32"
	yellow = "33"
	blue   = "34"
)

// columns is how wide the terminal is that somebody reads; 0 when the output
// goes elsewhere.
func (a *app) columns() int {
	if a.Columns == nil || a.json {
		return 0
	}
	return a.Columns()
}

// colours reports whether colours help: on a terminal that has them, unless
// the reader said no.
func (a *app) colours() bool {
	return a.columns() > 0 && a.Getenv("NO_COLOR") == "" && a.Getenv("TERM") != "dumb"
}

func (a *app) paint(style, s string) string {
	if style == plain || s == "" || !a.colours() {
		return s
	}
	return "\x1b[" + style + "m" + s + "\x1b[0m"
}

// state paints a word for where something stands.
func (a *app) state(word string) string {
	style := plain
	switch word {
	case "completed", "approved":
		style = green
	case "failed", "denied", "damaged":
		style = red
	case "parked":
		style = yellow
	case "running", "ready":
		style = blue
	case "aborted", "idle":
		style = dim
	}
	return a.paint(style, show(word, 0))
}

// width is how many columns a text takes; our own colours take none.
func width(s string) int {
	n := 0
	for i := 0; i < len(s); {
		if s[i] == '\x1b' {
			if end := strings.IndexByte(s[i:], 'm'); end >= 0 {
				i += end + 1
				continue
			}
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		i += size
		n += runeWidth(r)
	}
	return n
}

func runeWidth(r rune) int {
	switch {
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		return 0
	case r >= 0x1100 && r <= 0x115f, r >= 0x2e80 && r <= 0xa4cf, r >= 0xac00 && r <= 0xd7a3, r >= 0xf900 && r <= 0xfaff,
		r >= 0xfe30 && r <= 0xfe4f, r >= 0xff00 && r <= 0xff60, r >= 0xffe0 && r <= 0xffe6, r >= 0x1f300 && r <= 0x1faff, r >= 0x20000 && r <= 0x3fffd:
		return 2
	}
	return 1
}

// fit shortens a text without colours to so many columns.
func fit(s string, columns int) string {
	if width(s) <= columns {
		return s
	}
	n := 0
	for i, r := range s {
		if n += runeWidth(r); n > columns-1 {
			return s[:i] + "…"
		}
	}
	return s
}

// narrowest is how wide the widest column of a table has to stay, so that what
// is in it can be read.
const narrowest = 24

// squeeze breaks the cells of the widest column, so that a table becomes as wide
// as its terminal. It reports false where that would not do.
func squeeze(rows [][]string, columns int) ([][]string, bool) {
	w := widths(rows)
	widest := 0
	for c := range w {
		if w[c] > w[widest] {
			widest = c
		}
	}
	room := columns - rowWidth(w) + w[widest]
	if room < narrowest {
		return nil, false
	}
	var out [][]string
	for _, row := range rows {
		for i, part := range wrap(row[widest], room) {
			if width(part) > room {
				return nil, false // a word that a person may want to copy
			}
			cells := make([]string, len(row))
			if i == 0 {
				copy(cells, row)
			}
			cells[widest] = part
			out = append(out, cells)
		}
	}
	return out, true
}

// table prints rows in columns, the first one as their names. On a terminal
// that is too narrow the widest column is broken into lines; where that is not
// enough, each row becomes a block of its own.
func (a *app) table(rows [][]string) {
	columns := a.columns()
	tooWide := columns > 0 && len(rows) > 1 && rowWidth(widths(rows)) > columns
	if squeezed, ok := squeeze(rows, columns); tooWide && ok {
		rows, tooWide = squeezed, false
	}
	if tooWide {
		for i, row := range rows[1:] {
			if i > 0 {
				a.printf("\n")
			}
			block := make([][]string, len(row))
			for c, cell := range row {
				block[c] = []string{strings.ToLower(rows[0][c]), cell}
			}
			a.facts(block)
		}
		return
	}
	w := widths(rows)
	for i, row := range rows {
		if i == 0 {
			for c := range row {
				row[c] = a.paint(dim, row[c])
			}
		}
		a.printf("%s\n", line(row, w))
	}
}

// facts prints names and values. On a terminal a value goes on below itself; a
// word that is too long is left to the terminal, so that it can be copied.
func (a *app) facts(rows [][]string) {
	w := widths(rows)
	columns := a.columns()
	for _, row := range rows {
		row[0] = a.paint(dim, row[0])
		if columns == 0 || len(row) != 2 || width(row[1]) <= columns-w[0]-2 {
			a.printf("%s\n", line(row, w))
			continue
		}
		for i, part := range wrap(row[1], columns-w[0]-2) {
			name := row[0]
			if i > 0 {
				name = ""
			}
			a.printf("%s\n", line([]string{name, part}, w))
		}
	}
}

// below prints a text behind a margin that is already printed or is spaces: on a
// terminal its lines go on below each other.
func (a *app) below(margin int, text string) {
	columns := a.columns()
	if columns == 0 || margin+width(text) <= columns {
		a.printf("%s\n", text)
		return
	}
	a.printf("%s\n", strings.Join(wrap(text, columns-margin), "\n"+strings.Repeat(" ", margin)))
}

func widths(rows [][]string) []int {
	var w []int
	for _, row := range rows {
		for c, cell := range row {
			if c == len(w) {
				w = append(w, 0)
			}
			w[c] = max(w[c], width(cell))
		}
	}
	return w
}

func rowWidth(widths []int) int {
	sum := 2 * (len(widths) - 1)
	for _, w := range widths {
		sum += w
	}
	return sum
}

// line is one row, without spaces at its end.
func line(row []string, widths []int) string {
	var out strings.Builder
	for c, cell := range row {
		out.WriteString(cell)
		if c < len(row)-1 {
			out.WriteString(strings.Repeat(" ", widths[c]-width(cell)+2))
		}
	}
	return strings.TrimRight(out.String(), " ")
}

// wrap breaks a text at spaces into lines of so many columns.
func wrap(s string, columns int) []string {
	var lines []string
	current := ""
	for word := range strings.SplitSeq(s, " ") {
		switch {
		case current == "":
			current = word
		case width(current)+1+width(word) <= max(columns, 10):
			current += " " + word
		default:
			lines, current = append(lines, current), word
		}
	}
	return append(lines, current)
}
