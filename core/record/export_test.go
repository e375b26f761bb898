package record

import "slices"

// Kinds lists the decoder table.
func Kinds() []string { return tagsOf(kinds, func(k kind) []tag { return k.tags }) }

// PartTypes lists the message part types of the decoder table.
func PartTypes() []string { return tagsOf(partTypes, func(p part) []tag { return p.tags }) }

func tagsOf[E any](table map[string]E, tags func(E) []tag) []string {
	var all []string
	for _, e := range table {
		quoted := tags(e)[0].raw
		all = append(all, quoted[1:len(quoted)-1])
	}
	slices.Sort(all)
	return all
}

// PartType names a part's type.
func PartType(p Part) string { return p.partType() }
