#include <tessera/layout/mesh_shape.h>
