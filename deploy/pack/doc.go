// Pack makes what a release consists of from programs that are built already: an image
// for each agent, as an OCI archive for all architectures; an archive of the programs for
// each architecture; an SPDX document; and the checksums of them all. "make image" and
// "make release" run it.
//
// The same programs, version and time give the same bytes. No daemon, registry or
// privilege is needed.
package main
