package demo

import (
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/layover-run/layover/core/model"
)

// readers are the first words of tools that only read.
var readers = []string{"get", "look", "find", "search", "list", "read", "fetch", "check", "lookup"}

// doing are words of a name or a description that are never said of reading:
// with one of them no tool is a reader.
var doing = stems("place pay send delete create sell post buy cancel remove submit replace write publish purchase")

// nouns are those of doing which are also things to read: they count in a
// description where a verb stands, and not in a name.
var nouns = stems("place post order book charge transfer refund update purchase")

// phrases begin like reading and are not.
var phrases = []string{"check out", "check in", "get rid", "read out", "look after"}

// generic verbs say nothing about what is done: the rest of the name does.
var generic = stems("issue make do run create set perform execute start process handle apply put use call trigger")

// reader reports whether a tool only reads, as far as its name and its
// description tell.
func reader(t model.Tool) bool {
	name := words(t.Name)
	if len(name) == 0 || !slices.Contains(readers, name[0]) {
		return false
	}
	joined := strings.Join(name, " ")
	for _, phrase := range phrases {
		if joined == phrase || strings.HasPrefix(joined, phrase+" ") {
			return false
		}
	}
	if strings.HasSuffix(joined, " for sale") {
		return false
	}
	for _, word := range name[1:] {
		if doing[stem(word)] && !nouns[stem(word)] {
			return false
		}
	}
	for _, sentence := range sentences(t.Description) {
		for i, word := range sentence {
			verb := i == 0 || slices.Contains([]string{"and", "or", "then", "which", "that", "it", "also"}, sentence[i-1])
			if verb && nouns[stem(word)] || doing[stem(word)] && !nouns[stem(word)] && (verb || strings.HasSuffix(word, "s")) {
				return false
			}
		}
	}
	return true
}

// asked is what the instructions and the user of this run said: the words of
// each sentence that forbids nothing.
type asked struct{ said map[string]bool }

var forbidding = []string{"not", "never", "no", "nothing", "cannot", "don't", "can't", "won't", "mustn't", "without"}

func (a *asked) hear(text string) {
	if a.said == nil {
		a.said = map[string]bool{}
	}
	for _, sentence := range sentences(text) {
		if slices.ContainsFunc(sentence, func(word string) bool { return slices.Contains(forbidding, word) }) {
			continue
		}
		for _, word := range sentence {
			a.said[stem(word)] = true
		}
	}
}

// hearValue hears the texts in a JSON value, and not its names.
func (a *asked) hearValue(v any) {
	switch v := v.(type) {
	case string:
		a.hear(v)
	case []any:
		for _, inner := range v {
			a.hearValue(inner)
		}
	case object:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			a.hearValue(v[key])
		}
	}
}

// about reports whether somebody asked for what a tool does: its verb was
// said, and one of the longer words behind it if there are any.
func (a *asked) about(t model.Tool) bool {
	name := words(t.Name)
	verb := ""
	if len(name) > 0 && !generic[stem(name[0])] {
		verb, name = name[0], name[1:]
		if !a.said[stem(verb)] {
			return false
		}
	}
	longer := slices.DeleteFunc(slices.Clone(name), func(word string) bool { return len(word) < 4 || generic[stem(word)] })
	if len(longer) == 0 {
		return verb != ""
	}
	return slices.ContainsFunc(longer, func(word string) bool { return a.said[stem(word)] })
}

// sentences cuts text into sentences, and these into lower-case words.
func sentences(text string) (out [][]string) {
	for _, sentence := range strings.FieldsFunc(text, func(c rune) bool { return strings.ContainsRune(".!?;:\n", c) }) {
		sentence = strings.ReplaceAll(sentence, "’", "'")
		list := strings.FieldsFunc(strings.ToLower(sentence), func(c rune) bool { return !unicode.IsLetter(c) && !unicode.IsDigit(c) && c != '\'' })
		if len(list) > 0 {
			out = append(out, list)
		}
	}
	return out
}

// words cuts a name at _, - and the capitals of camelCase.
func words(name string) []string {
	var b strings.Builder
	lower := false
	for _, c := range name {
		if c == '_' || c == '-' || unicode.IsUpper(c) && lower {
			b.WriteByte(' ')
		}
		if c != '_' && c != '-' {
			b.WriteRune(unicode.ToLower(c))
		}
		lower = unicode.IsLower(c) || unicode.IsDigit(c)
	}
	return strings.Fields(b.String())
}

// stem makes singular and plural one word, and "pay" and "pays".
func stem(word string) string {
	switch {
	case strings.HasSuffix(word, "ies") && len(word) > 4:
		return strings.TrimSuffix(word, "ies") + "y"
	case strings.HasSuffix(word, "sses"), strings.HasSuffix(word, "shes"), strings.HasSuffix(word, "ches"), strings.HasSuffix(word, "xes"):
		return strings.TrimSuffix(word, "es")
	case strings.HasSuffix(word, "s") && !strings.HasSuffix(word, "ss") && len(word) > 3:
		return strings.TrimSuffix(word, "s")
	}
	return word
}

func stems(list string) map[string]bool {
	set := map[string]bool{}
	for word := range strings.FieldsSeq(list) {
		set[stem(word)] = true
	}
	return set
}
