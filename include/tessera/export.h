// TESSERA_API: marks what users' programs link to.
//
// The release build links all layers into one libtessera.so, compiled with
// -fvisibility=hidden -fvisibility-inlines-hidden; src/exports.map also keeps
// the std:: templates inside that it instantiates. In a development build, one
// shared library per layer, every symbol is visible, so a mark that is missing
// is found by scripts/check_exports.py and not by the linker.
#pragma once

/// Shows a symbol of the library. Stands before the type of a function that a
/// source defines, and between `class` and the name of a class with such
/// members, with virtual functions, or that is thrown.
#define TESSERA_API __attribute__((visibility("default")))
