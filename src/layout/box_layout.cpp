#include <tessera/layout/box_layout.h>
