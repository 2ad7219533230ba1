// Pack appends executables to a program, as a zip archive that the program reads from its own file.
package main

import (
	"archive/zip"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "pack PROGRAM EXECUTABLE...")
		os.Exit(2)
	}
	if err := pack(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "pack:", err)
		os.Exit(1)
	}
}

func pack(program string, executables []string) error {
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
	for _, path := range executables {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		to, err := archive.Create(filepath.Base(path))
		if err != nil {
			return err
		}
		if _, err := to.Write(data); err != nil {
			return err
		}
	}
	return archive.Close()
}
