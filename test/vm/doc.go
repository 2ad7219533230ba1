// Package vm proves the plugin on a real kernel. Its tests have the build tag vm
// and run in the machine that README.md describes, where they find the real
// binary, the reference plugins, and libcni as the runtime; the script test in this folder
// builds and runs all of that. What cannot be built is a stand-in, and a test that has one
// says so.
//
// A set-up of the machine that is missing fails the tests that need it. Whatever
// can be compared is compared whole: the device-info file, the result, the error,
// the warnings.
package vm
