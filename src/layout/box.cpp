#include <tessera/layout/box.h>
