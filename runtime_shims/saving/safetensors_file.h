// A file of one tensor: its name in the run directory, and the bytes that come before the elements.
#pragma once

#include <string>
#include <string_view>

#include "formats/journal_format.h"
#include "journal/launch_id.h"
#include "tensors/tensor_meta.h"

namespace aoti_debug {

constexpr size_t kLongestFileName = 255;

// Where a tensor is saved, relative to the run directory.
struct TensorPath {
  std::string directory;  // "tensors/0/0003_triton_poi_fused_0"
  std::string file;       // "before_launch_triton_poi_fused_0_buf4_cuda:0.safetensors"

  std::string whole() const { return directory + "/" + file; }
  // Of a reference to the tensor (weights_file.h): "….weight.json".
  std::string reference() const;
};

TensorPath tensor_path(const LaunchId& id, Phase phase, std::string_view kernel, std::string_view argument,
                       const TensorMeta& meta);

// Characters outside [A-Za-z0-9._,=@:+-] as %XX.
std::string escaped(std::string_view name);

// `name` and `extension` as a file name. One that is too long is cut, and ends in "~", 8 hex digits of the whole name's
// content hash, and the extension.
std::string file_name(const std::string& name, std::string_view extension);

// Length, JSON and padding. It depends on nothing but the key, the dtype and the layout: equal tensors have equal
// files. The dtype must have a safetensors name.
std::string safetensors_header(std::string_view key, const TensorMeta& meta);

}  // namespace aoti_debug
