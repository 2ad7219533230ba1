// Static is a plugin that needs no file but its own.
package main

import (
	"fmt"
	"os"
)

func main() {
	dir, _ := os.Getwd()
	entries, _ := os.ReadDir("/")
	fmt.Printf(`{"dir":%q,"entries":%q}`, dir, entries[0].Name())
}
