package main

import (
	"strings"
	"testing"
)

func TestMeasure(t *testing.T) {
	const ms = "000000"
	for name, c := range map[string]struct {
		file string
		want Report
	}{
		"empty": {"", Report{}},
		"steady": {
			"1 10" + ms + "\n2 11" + ms + "\n3 12" + ms + "\n",
			Report{Beats: 3, First: 1, Last: 3, GapMS: 1, GapAt: 1, FromNS: 10000000, ToNS: 11000000},
		},
		"frozen between 2 and 3": {
			"1 10" + ms + "\n2 11" + ms + "\n3 311" + ms + "\n4 312" + ms + "\n",
			Report{Beats: 4, First: 1, Last: 4, GapMS: 300, GapAt: 2, FromNS: 11000000, ToNS: 311000000},
		},
		"beats lost": {
			"1 10" + ms + "\n5 14" + ms + "\n",
			Report{Beats: 2, First: 1, Last: 5, GapMS: 4, GapAt: 1, FromNS: 10000000, ToNS: 14000000, Missed: 3},
		},
		"torn line": {
			"1 10" + ms + "\n2 1\x00\x00\n2 11" + ms + "\n",
			Report{Beats: 2, First: 1, Last: 2, GapMS: 1, GapAt: 1, FromNS: 10000000, ToNS: 11000000, Broken: 1},
		},
		"last line unfinished": {
			"1 10" + ms + "\n2 11",
			Report{Beats: 1, First: 1, Last: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := measure(strings.NewReader(c.file))
			if err != nil || got != c.want {
				t.Errorf("got %+v, %v; want %+v", got, err, c.want)
			}
		})
	}
}
