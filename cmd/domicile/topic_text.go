package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	pb "domicile/api/domicile/v1"
	"domicile/regions"
)

// holdingRow is one log of a topic as this region holds it; a figure that is not
// known here is said to be unknown.
func holdingRow(h *pb.LogHolding) []string {
	row := []string{logName(h.GetLog()), firstOf(h.GetRole(), unknown), firstOf(h.GetHome(), unknown)}
	if h.GetRole() == "elsewhere" {
		return append(row, "not kept here")
	}
	if h.GetState() == "ABSENT" {
		return append(row, "not there: copied anew with the log's next record, or when its link comes up")
	}
	if !h.GetKnown() {
		return append(row, unknown)
	}
	stored := fmt.Sprintf("%s records, %d to %d", count(h.GetRecords()), h.GetFirst(), h.GetHead())
	if h.GetFirst() > h.GetHead() {
		stored = "empty"
	}
	return append(row, stored, regions.Bytes(h.GetBytes()), stateText(h.GetState()), h.GetSync())
}

func renderTopics(r *pb.TopicsResponse) string {
	var b strings.Builder
	rows := [][]string{{"TOPIC", "WRITES", "MIRROR", "LOGS HERE", "RECORDS HERE"}}
	for _, t := range r.GetTopics() {
		here, records, whole := 0, uint64(0), true
		for _, h := range t.GetLogs() {
			if h.GetRole() == "elsewhere" {
				continue
			}
			here++
			records += h.GetRecords()
			whole = whole && h.GetKnown()
		}
		text := count(records)
		if !whole {
			text = unknown
		}
		d := t.GetDeclaration()
		rows = append(rows, []string{t.GetName(), d["writes"], firstOf(d["mirror"], "none"), fmt.Sprintf("%d of %d", here, len(t.GetLogs())), text})
	}
	table(&b, "", rows)
	return b.String()
}

func renderTopic(t *pb.TopicState, from string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  (declaration %s)\n", t.GetName(), t.GetDigest())
	var declaration, logs [][]string
	for _, field := range slices.Sorted(maps.Keys(t.GetDeclaration())) {
		if v := t.GetDeclaration()[field]; v != "" {
			declaration = append(declaration, []string{field, v})
		}
	}
	for _, h := range t.GetLogs() {
		logs = append(logs, holdingRow(h))
	}
	section(&b, "Declared", declaration, unknown)
	section(&b, "Logs"+saidBy(from), logs, "none")
	section(&b, "Records carry one of these", lines(t.GetCombinations()), unknown)
	section(&b, "What you can rely on", paragraphs(t.GetContract()), unknown)
	return b.String()
}

const textWidth = 92

// paragraphs breaks sentences into lines; what follows the first is indented.
func paragraphs(texts []string) [][]string {
	var rows [][]string
	for _, text := range texts {
		line, indent := "- ", "  "
		for _, word := range strings.Fields(text) {
			if utf8.RuneCountInString(line)+utf8.RuneCountInString(word) > textWidth && line != indent {
				rows = append(rows, []string{strings.TrimRight(line, " ")})
				line = indent
			}
			line += word + " "
		}
		rows = append(rows, []string{strings.TrimRight(line, " ")})
	}
	return rows
}

type holdingView struct {
	Log         string  `json:"log"`
	Home        string  `json:"home"`
	Role        string  `json:"role"`
	State       string  `json:"state,omitempty"`
	Incarnation string  `json:"incarnation,omitempty"`
	First       *uint64 `json:"first"`
	Head        *uint64 `json:"head"`
	Records     *uint64 `json:"records"`
	Bytes       *uint64 `json:"bytes"`
	Sync        string  `json:"sync,omitempty"`
}

type topicView struct {
	Name         string            `json:"name"`
	Digest       string            `json:"digest"`
	Declaration  map[string]string `json:"declaration"`
	Logs         []holdingView     `json:"logs"`
	Combinations []string          `json:"combinations"`
	Contract     []string          `json:"contract"`
	From         string            `json:"from,omitempty"` // the node that knows the logs, if it is another than was asked
}

func viewTopic(t *pb.TopicState, from string) topicView {
	v := topicView{Name: t.GetName(), Digest: t.GetDigest(), Declaration: t.GetDeclaration(), Logs: []holdingView{}, Combinations: t.GetCombinations(), Contract: t.GetContract(), From: from}
	for _, h := range t.GetLogs() {
		v.Logs = append(v.Logs, holdingView{
			Log: logName(h.GetLog()), Home: h.GetHome(), Role: h.GetRole(), State: h.GetState(), Incarnation: h.GetIncarnation(),
			First: known(h.GetFirst(), h.GetKnown()), Head: known(h.GetHead(), h.GetKnown()),
			Records: known(h.GetRecords(), h.GetKnown()), Bytes: known(h.GetBytes(), h.GetKnown()), Sync: h.GetSync(),
		})
	}
	return v
}
