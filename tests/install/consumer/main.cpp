// Uses each installed layer once.
#include <iostream>

#include <tessera/layout/layout.h>
#include <tessera/layout/notation.h>

int main() {
  const tessera::MeshShape mesh({4});
  for (int64_t rank = 0; rank < 4; ++rank) {
    const auto shape =
        tessera::local_shape({10}, mesh, {tessera::Shard(0)}, {rank});
    if (shape[0] != (rank < 3 ? 3 : 1)) {
      return 1;
    }
  }
  std::cout << tessera::parse_layout("f32[10] S(0) @ mesh(4)").layout << '\n'
            << "consumer: ok\n";
}
