package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/ctl/remedy"
)

// width is the number of columns of the terminal; 0 = no terminal, no limit.
func (t *tool) width() int {
	if !isTerminal(t.stdout) {
		return 0
	}
	size, err := unix.IoctlGetWinsize(int(t.stdout.(*os.File).Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}

const (
	gap      = 2  // columns between two cells
	narrowed = 5  // columns that a cell keeps when there is too little room
	readable = 12 // columns of a cell that can still be read, such as a PCI address
)

// without leaves out the columns of these headings, in this order, until every cell
// of the others can be read in the width.
func without(rows [][]string, width int, headings ...string) [][]string {
	for _, heading := range headings {
		total := -gap
		for _, w := range widths(rows) {
			total += min(w, readable) + gap
		}
		if width == 0 || total <= width {
			break
		}
		dropColumn(rows, heading)
	}
	return rows
}

// dropColumn leaves out the column of a heading, if it is there.
func dropColumn(rows [][]string, heading string) {
	if c := slices.Index(rows[0], heading); c >= 0 {
		for r, row := range rows {
			rows[r] = slices.Delete(row, c, c+1)
		}
	}
}

// widths are those of the columns.
func widths(rows [][]string) []int {
	all := make([]int, len(rows[0]))
	for _, row := range rows {
		for c, cell := range row {
			all[c] = max(all[c], utf8.RuneCountInString(cell))
		}
	}
	return all
}

// fit makes lines of rows of the same length, their cells below each other. In a
// width that is not 0 the widest cells are cut until a line fits, but for the last
// one, which is what matters.
func fit(rows [][]string, width int) []string {
	for _, row := range rows {
		for c, cell := range row {
			row[c] = printable(cell)
		}
	}
	widths := widths(rows)
	shrink(widths, width)
	lines := make([]string, 0, len(rows))
	for _, row := range rows {
		var b strings.Builder
		for c, cell := range row {
			cell = cut(cell, widths[c])
			if b.WriteString(cell); c < len(row)-1 {
				b.WriteString(strings.Repeat(" ", widths[c]-utf8.RuneCountInString(cell)+gap))
			}
		}
		lines = append(lines, cut(strings.TrimRight(b.String(), " "), width))
	}
	return lines
}

// printRows prints rows, the first of which has headings, in the width of the terminal. The last
// cells of the others have these colours, unless they were cut.
func (t *tool) printRows(w io.Writer, rows [][]string, last ...colour) {
	for n, line := range fit(rows, t.width()) {
		cell := rows[n][len(rows[n])-1]
		if rest, whole := strings.CutSuffix(line, cell); whole && n > 0 && n <= len(last) {
			line = rest + t.paint(last[n-1], cell)
		}
		fmt.Fprintln(w, line)
	}
}

func shrink(widths []int, width int) {
	total := gap * (len(widths) - 1)
	for _, w := range widths {
		total += w
	}
	for ; width > 0 && total > width; total-- {
		widest := slices.Index(widths, slices.Max(widths[:len(widths)-1]))
		if widths[widest] <= narrowed {
			return
		}
		widths[widest]--
	}
}

// cut keeps the beginning and, of what is much too long, the end: names differ there.
func cut(text string, width int) string {
	runes := []rune(text)
	if width <= 0 || len(runes) <= width {
		return text
	}
	tail := (width - 1) / 2
	return string(runes[:width-1-tail]) + "…" + string(runes[len(runes)-tail:])
}

// printable is text that is safe for a terminal; an empty cell is "-".
func printable(text string) string {
	if text == "" {
		return "-"
	}
	return remedy.Printable(text)
}
