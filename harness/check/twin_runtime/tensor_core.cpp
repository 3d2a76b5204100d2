// The arithmetic of mma.sync, as measured on real chips:
//   Xie, Xu, Wang, Yang, Yang: Bit-accurate modeling of GPU matrix multiply-accumulate units (MMA-Sim), arXiv:2511.10909;
//   Khattak, Mikaitis: Accurate models of NVIDIA tensor cores, arXiv:2512.07004;
//   Fasi, Higham, Mikaitis, Pranesh: Numerical behavior of NVIDIA tensor cores, PeerJ CS 7:e330 (2021).
// Products are exact. `terms` of them and the accumulator are shifted to the largest exponent among them, cut there to
// `fraction_bits` fraction bits (toward zero), and added exactly. The sum is cut to fp32, or rounded to nearest even for
// an fp16 accumulator. An exponent is what the operands' exponent fields add up to, so a product may reach 4 times 2^e; a
// zero counts with an exponent of its own.
#include <cmath>
#include <cstring>

#include "runtime.h"

namespace twin {

TensorCore tensor_core;

namespace {

constexpr int NO_EXPONENT = -100000;  // of a zero operand

template <class To, class From>
To bits_as(From from)
{
    static_assert(sizeof(To) == sizeof(From));
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}

double power_of_two(int exponent) { return bits_as<double>(static_cast<u64>(exponent + 1023) << 52); }

int field_exponent(u32 bits, int fraction, int width)
{
    const int bias = (1 << (width - 1)) - 1;
    const int field = static_cast<int>(bits >> fraction & ((1u << width) - 1));
    const bool zero = (bits & ((1u << (fraction + width)) - 1)) == 0;
    return zero ? NO_EXPONENT : (field ? field : 1) - bias;
}

// The 16 operands that one element of D needs from A or from B.
struct Vector {
    double values[16];
    int exponents[16];
    bool finite = true;
};

void set(Vector& vector, u32 k, u32 pair, Input input)
{
    for (u32 i = 0; i < 2; ++i) {
        const u16 bits = static_cast<u16>(pair >> (16 * i));
        const bool half = input == Input::fp16;
        vector.values[k + i] = half ? from_fp16(bits) : bits_as<float>(static_cast<u32>(bits) << 16);
        vector.exponents[k + i] = half ? field_exponent(bits, 10, 5) : field_exponent(bits, 7, 8);
        vector.finite &= std::isfinite(vector.values[k + i]);
    }
}

// Toward zero; infinity from 2^128 on.
float cut_to_float(double value)
{
    if (std::fabs(value) >= power_of_two(128)) {
        return value < 0 ? -HUGE_VALF : HUGE_VALF;
    }
    const float nearest = static_cast<float>(value);
    const bool outward = std::fabs(static_cast<double>(nearest)) > std::fabs(value);
    return outward ? bits_as<float>(bits_as<u32>(nearest) - 1) : nearest;
}

// c + the products from `first` on, exact but for what the alignment cuts off.
double fused_sum(const Vector& a, const Vector& b, u32 first, double c, int c_exponent, int zero_exponent)
{
    const u32 end = first + static_cast<u32>(tensor_core.terms);
    int largest = c_exponent < NO_EXPONENT / 2 ? zero_exponent : c_exponent;
    for (u32 k = first; k < end; ++k) {
        const int exponent = a.exponents[k] + b.exponents[k];
        const int counted = exponent < NO_EXPONENT / 2 ? zero_exponent : exponent;
        largest = counted > largest ? counted : largest;
    }
    const double scale = power_of_two(tensor_core.fraction_bits - largest);
    long long sum = static_cast<long long>(c * scale);
    for (u32 k = first; k < end; ++k) {
        sum += static_cast<int>(a.values[k] * b.values[k] * scale);
    }
    return static_cast<double>(sum) * power_of_two(largest - tensor_core.fraction_bits);
}

// NaN and infinities travel as in IEEE 754.
double sum_of_specials(const Vector& a, const Vector& b, double c)
{
    double sum = c;
    for (int k = 0; k < 16; ++k) {
        sum += a.values[k] * b.values[k];
    }
    return sum;
}

float add_products_fp32(const Vector& a, const Vector& b, float c)
{
    if (!(a.finite && b.finite && std::isfinite(c))) {
        return static_cast<float>(sum_of_specials(a, b, c));
    }
    for (u32 first = 0; first < 16; first += static_cast<u32>(tensor_core.terms)) {
        const int exponent = field_exponent(bits_as<u32>(c), 23, 8);
        c = cut_to_float(fused_sum(a, b, first, c, exponent, tensor_core.zero_exponent_fp32));
    }
    return c;
}

u16 add_products_fp16(const Vector& a, const Vector& b, u16 c)
{
    if (!(a.finite && b.finite && std::isfinite(from_fp16(c)))) {
        return to_fp16(sum_of_specials(a, b, from_fp16(c)));
    }
    for (u32 first = 0; first < 16; first += static_cast<u32>(tensor_core.terms)) {
        const int exponent = field_exponent(c, 10, 5);
        c = to_fp16(fused_sum(a, b, first, from_fp16(c), exponent, tensor_core.zero_exponent_fp16));
    }
    return c;
}

}  // namespace

// Lane 4 g + t holds of A: rows g and g + 8, columns 2 t, 2 t + 1, and those 8 further; of B: the same rows k of column
// g; of D: rows g and g + 8, columns 2 t and 2 t + 1.
void multiply_warp(MmaLane* const (&lanes)[32])
{
    static Vector rows[16], columns[8];
    for (Vector& row : rows) {
        row.finite = true;
    }
    for (Vector& column : columns) {
        column.finite = true;
    }
    for (u32 lane = 0; lane < 32; ++lane) {
        const MmaLane& mine = *lanes[lane];
        const u32 g = lane / 4, t = lane % 4;
        set(rows[g], 2 * t, mine.a[0], mine.input);
        set(rows[g + 8], 2 * t, mine.a[1], mine.input);
        set(rows[g], 2 * t + 8, mine.a[2], mine.input);
        set(rows[g + 8], 2 * t + 8, mine.a[3], mine.input);
        set(columns[g], 2 * t, mine.b[0], mine.input);
        set(columns[g], 2 * t + 8, mine.b[1], mine.input);
    }
    for (u32 lane = 0; lane < 32; ++lane) {
        const u32 g = lane / 4, t = lane % 4;
        for (u32 i = 0; i < 4; ++i) {
            const Vector& row = rows[g + i / 2 * 8];
            const Vector& column = columns[2 * t + i % 2];
            if (lanes[lane]->fp16_accumulator) {
                u16& d = static_cast<u16*>(lanes[lane]->d)[i];
                d = add_products_fp16(row, column, d);
            } else {
                float& d = static_cast<float*>(lanes[lane]->d)[i];
                d = add_products_fp32(row, column, d);
            }
        }
    }
}

// ---- 16-bit floats, and the special functions ----------------------------------------------------------------------

float from_fp16(u16 bits)
{
    const u32 magnitude = bits & 0x7fffu;
    const u32 sign = static_cast<u32>(bits & 0x8000u) << 16;
    if (magnitude >= 0x7c00u) {
        return bits_as<float>(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
    }
    // Read as fp32 the bits stand for a value 2^112 too small, subnormals included.
    const float value = bits_as<float>(magnitude << 13) * 0x1p112f;
    return sign ? -value : value;
}

u16 to_fp16(double value)
{
    if (value != value) {
        return 0x7fff;
    }
    const u16 sign = std::signbit(value) ? 0x8000 : 0;
    const double magnitude = std::fabs(value);
    if (magnitude >= 65520.0) {  // halfway between the largest number and the next power of two
        return sign | 0x7c00;
    }
    // Adding a power of two whose last bit is worth one unit of the result rounds to nearest even.
    int exponent = magnitude < 0x1p-14 ? -14 : static_cast<int>(bits_as<u64>(magnitude) >> 52) - 1023;
    const double aligner = power_of_two(exponent - 10 + 52);
    const u64 units = static_cast<u64>((magnitude + aligner - aligner) * power_of_two(10 - exponent));
    // Units of 2^(e - 10): from 1024 on they carry the exponent field with them, also where rounding raised it.
    return sign | static_cast<u16>(units + (static_cast<u64>(exponent + 14) << 10));
}

u16 to_bf16(float value)
{
    const u32 bits = bits_as<u32>(value);
    return value != value ? 0x7fff : static_cast<u16>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

namespace {
float flush(float x) { return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; }
}  // namespace

float exp2_fast(float x) { return flush(std::exp2(flush(x))); }
float log2_fast(float x) { return std::log2(flush(x)); }

}  // namespace twin
