// Pack appends a directory of executables to a program, as a zip archive that the program reads from its own file.
package main

import (
	"archive/zip"
	"fmt"
	"io"
	"os"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "pack PROGRAM DIRECTORY")
		os.Exit(2)
	}
	if err := pack(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "pack:", err)
		os.Exit(1)
	}
}

func pack(program, executables string) error {
	out, err := os.OpenFile(program, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	defer out.Close()
	end, err := out.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	archive := zip.NewWriter(out)
	archive.SetOffset(end)
	if err := archive.AddFS(os.DirFS(executables)); err != nil {
		return err
	}
	return archive.Close()
}
