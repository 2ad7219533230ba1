// Hello is the least that a Go program can be: what the start of the others is
// measured by.
package main

import "fmt"

func main() { fmt.Println("hello") }
