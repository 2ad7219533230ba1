// Probe runs in the containers of the tests in the parent directory, and prints the device information that it finds.
// Its first argument is the environment variable with the path of the device-info file. The other arguments are device
// nodes, directories (ending in a slash), files (ending in .json), and "-", which waits for a line.
package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"
)

func main() {
	path := os.Getenv(os.Args[1])
	text, err := os.ReadFile(path)
	fmt.Printf("%s\n%s%v\n", path, text, err)
	_, err = os.OpenFile(path, os.O_WRONLY, 0)
	fmt.Println(err)
	for _, arg := range os.Args[2:] {
		switch {
		case arg == "-":
			fmt.Println("waiting")
			_, err := bufio.NewReader(os.Stdin).ReadString('\n')
			fmt.Println("-", err)
		case strings.HasSuffix(arg, "/"):
			list(arg)
		case strings.HasSuffix(arg, ".json"):
			text, err := os.ReadFile(arg)
			fmt.Printf("%s%v\n", text, err)
		default:
			node(arg)
		}
	}
}

func list(dir string) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		text, err := os.ReadFile(dir + e.Name())
		fmt.Println(e.Name(), len(text) > 0, err)
	}
	fmt.Println(dir, err, os.WriteFile(dir+"x", nil, 0o644))
}

func node(path string) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	n := 0
	if err == nil {
		n, err = f.Read(make([]byte, 2))
	}
	fmt.Println(path, n, err)
}
