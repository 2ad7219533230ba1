// Package vm tests the plugin with real drivers. Its tests have the build tag vm, and run in the machine that README.md
// describes. The machine has the real binary, the reference plugins, and libcni as the runtime. The script test in this
// folder builds and runs it. Programs that cannot be built here have a replacement (standin), and the comment of a test
// says if it uses one.
//
// A device that is missing in the machine fails its tests. The tests compare whole values: the device-info file, the
// result, the error and the warnings.
package vm
