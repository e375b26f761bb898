package console

import (
	"bytes"
	"encoding/json"
	"html/template"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// shownBytes bounds one value on a page; the records have it whole.
const shownBytes = 64 << 10

// visible is somebody else's text as HTML. Markup is text, and what a browser
// would obey, hide or reorder (control characters, changes of direction,
// invisible ones) is spelled out and marked, so that two different texts never
// look the same.
func visible(s string) template.HTML {
	s, cut := clip(s)
	var out strings.Builder
	from := 0
	for i, r := range s {
		size := utf8.RuneLen(r)
		bad := r == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD")
		if bad {
			size = 1
		}
		if !bad && (unicode.IsPrint(r) || r == '\n') {
			continue
		}
		template.HTMLEscape(&out, []byte(s[from:i]))
		from = i + size
		spelled := `\x` + strconv.FormatUint(uint64(s[i]), 16)
		if !bad {
			quoted := strconv.QuoteRuneToASCII(r)
			spelled = quoted[1 : len(quoted)-1]
		}
		out.WriteString(`<span class="esc">` + spelled + `</span>`)
	}
	template.HTMLEscape(&out, []byte(s[from:]))
	if cut > 0 {
		out.WriteString(moreBytes(cut))
	}
	return template.HTML(out.String()) // every part above is escaped, or ours
}

// clip shortens a text at a character and tells by how much.
func clip(s string) (string, int) {
	if len(s) <= shownBytes {
		return s, 0
	}
	end := shownBytes
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end], len(s) - end
}

// value is a JSON value to read: a text as itself, anything else indented. Line
// ends inside of texts stay spelled out.
func value(raw json.RawMessage) template.HTML {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return visible(text)
	}
	return exact(raw)
}

// exact is a JSON value as it is, indented: what a person decides about.
func exact(raw json.RawMessage) template.HTML {
	var buf bytes.Buffer
	if err := json.Indent(&buf, raw, "", "  "); err != nil {
		return visible(string(raw))
	}
	return visibleJSON(buf.String())
}

// visibleJSON is JSON as HTML. What JSON itself spells out is marked like what
// visible spells out: one character never looks like two different ones.
func visibleJSON(s string) template.HTML {
	s, cut := clip(s)
	var out strings.Builder
	from := 0
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			continue
		}
		if i+6 <= len(s) && s[i+1] == 'u' {
			out.WriteString(string(visible(s[from:i])))
			out.WriteString(`<span class="esc">` + template.HTMLEscapeString(s[i:i+6]) + `</span>`)
			from = i + 6
			i += 5
			continue
		}
		i++ // whatever is escaped, it is no escape itself
	}
	out.WriteString(string(visible(s[from:])))
	if cut > 0 {
		out.WriteString(moreBytes(cut))
	}
	return template.HTML(out.String()) // every part above is escaped, or ours
}

func moreBytes(n int) string {
	return `<span class="esc">… ` + strconv.Itoa(n) + ` more bytes</span>`
}

// oneLine is a value in one line of a list.
func oneLine(raw json.RawMessage) template.HTML {
	const limit = 200
	s := string(raw)
	if n := utf8.RuneCountInString(s); n > limit {
		s = string([]rune(s)[:limit]) + "…"
	}
	return visibleJSON(strings.ReplaceAll(s, "\n", " "))
}
