// Probe is what runs in the container of the tests in the directory above: it says
// what it has been given. The environment variable that is its first argument names
// its device-info file; the other arguments are device nodes.
package main

import (
	"fmt"
	"os"
)

func main() {
	path := os.Getenv(os.Args[1])
	text, err := os.ReadFile(path)
	fmt.Printf("%s\n%s%v\n", path, text, err)
	_, err = os.OpenFile(path, os.O_WRONLY, 0)
	fmt.Println(err)
	for _, node := range os.Args[2:] {
		f, err := os.OpenFile(node, os.O_RDWR, 0)
		n := 0
		if err == nil {
			n, err = f.Read(make([]byte, 2))
		}
		fmt.Println(node, n, err)
	}
}
