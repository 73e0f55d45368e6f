#include "dtype.h"

#include <iterator>

namespace aoti_debug {
namespace {

constexpr DType kDTypes[kFirstUnknownDType] = {
    {"uint8", "U8", 1, 1, Kind::kInteger},
    {"int8", "I8", 1, 1, Kind::kInteger},
    {"int16", "I16", 2, 1, Kind::kInteger},
    {"int32", "I32", 4, 1, Kind::kInteger},
    {"int64", "I64", 8, 1, Kind::kInteger},
    {"float16", "F16", 2, 1, Kind::kFloat},
    {"float32", "F32", 4, 1, Kind::kFloat},
    {"float64", "F64", 8, 1, Kind::kFloat},
    {"complex32", "F16", 4, 2, Kind::kComplex},
    {"complex64", "C64", 8, 1, Kind::kComplex},
    {"complex128", "F64", 16, 2, Kind::kComplex},
    {"bool", "BOOL", 1, 1, Kind::kBool},
    {"qint8", nullptr, 1, 1, Kind::kUnreadable},
    {"quint8", nullptr, 1, 1, Kind::kUnreadable},
    {"qint32", nullptr, 4, 1, Kind::kUnreadable},
    {"bfloat16", "BF16", 2, 1, Kind::kFloat},
    {"quint4x2", nullptr, 1, 1, Kind::kUnreadable},
    {"quint2x4", nullptr, 1, 1, Kind::kUnreadable},
    {"bits1x8", "U8", 1, 1, Kind::kPacked},
    {"bits2x4", "U8", 1, 1, Kind::kPacked},
    {"bits4x2", "U8", 1, 1, Kind::kPacked},
    {"bits8", "U8", 1, 1, Kind::kPacked},
    {"bits16", "U16", 2, 1, Kind::kPacked},
    {"float8_e5m2", "F8_E5M2", 1, 1, Kind::kFloat},
    {"float8_e4m3fn", "F8_E4M3", 1, 1, Kind::kFloat},
    {"float8_e5m2fnuz", "F8_E5M2FNUZ", 1, 1, Kind::kFloat},
    {"float8_e4m3fnuz", "F8_E4M3FNUZ", 1, 1, Kind::kFloat},
    {"uint16", "U16", 2, 1, Kind::kInteger},
    {"uint32", "U32", 4, 1, Kind::kInteger},
    {"uint64", "U64", 8, 1, Kind::kInteger},
    {"uint1", "U8", 1, 1, Kind::kPacked},
    {"uint2", "U8", 1, 1, Kind::kPacked},
    {"uint3", "U8", 1, 1, Kind::kPacked},
    {"uint4", "U8", 1, 1, Kind::kPacked},
    {"uint5", "U8", 1, 1, Kind::kPacked},
    {"uint6", "U8", 1, 1, Kind::kPacked},
    {"uint7", "U8", 1, 1, Kind::kPacked},
    {"int1", "U8", 1, 1, Kind::kPacked},
    {"int2", "U8", 1, 1, Kind::kPacked},
    {"int3", "U8", 1, 1, Kind::kPacked},
    {"int4", "U8", 1, 1, Kind::kPacked},
    {"int5", "U8", 1, 1, Kind::kPacked},
    {"int6", "U8", 1, 1, Kind::kPacked},
    {"int7", "U8", 1, 1, Kind::kPacked},
    {"float8_e8m0fnu", "F8_E8M0", 1, 1, Kind::kFloat},
    {"float4_e2m1fn_x2", "F4", 1, 2, Kind::kPacked},
    {"bcomplex32", "BF16", 4, 2, Kind::kComplex},
};
constexpr DType kUnknown = {"unknown", nullptr, 0, 1, Kind::kUnreadable};

constexpr const char* kDevices[] = {"cpu",  "cuda", "mkldnn", "opengl", "opencl", "ideep", "hip",
                                    "fpga", "maia", "xla",    "vulkan", "metal",  "xpu",   "mps",
                                    "meta", "hpu",  "ve",     "lazy",   "ipu",    "mtia",  "privateuseone"};
constexpr const char* kLayouts[] = {"strided",    "sparse_coo", "sparse_csr", "mkldnn",
                                    "sparse_csc", "sparse_bsr", "sparse_bsc", "jagged"};

}  // namespace

const DType& dtype(int32_t scalar_type) {
  return scalar_type >= 0 && scalar_type < kFirstUnknownDType ? kDTypes[scalar_type] : kUnknown;
}

bool is_quantized(int32_t scalar_type) {
  return (scalar_type >= 12 && scalar_type <= 14) || scalar_type == 16 || scalar_type == 17;
}

std::string device_name(int32_t device_type, int32_t device_index) {
  const bool known = device_type >= 0 && device_type < static_cast<int32_t>(std::size(kDevices));
  std::string name = known ? kDevices[device_type] : "device" + std::to_string(device_type);
  if (device_type != kDeviceCpu && device_index >= 0) name += ":" + std::to_string(device_index);
  return name;
}

const char* layout_name(int32_t layout) {
  return layout >= 0 && layout < static_cast<int32_t>(std::size(kLayouts)) ? kLayouts[layout] : "unknown";
}

}  // namespace aoti_debug
