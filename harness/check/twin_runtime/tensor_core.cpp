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

// Nearly all time goes here: compiled for AVX2 too, chosen when the program starts.
#define INLINE inline __attribute__((always_inline))
#if defined(__x86_64__) && !defined(__clang__)
#define FAST_VARIANTS __attribute__((target_clones("avx2", "default")))
#else
#define FAST_VARIANTS
#endif

namespace twin {

TensorCore tensor_core;

namespace {

constexpr int NO_EXPONENT = -100000;  // of a zero operand

template <class To, class From>
INLINE To bits_as(From from)
{
    static_assert(sizeof(To) == sizeof(From));
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}

INLINE double power_of_two(int exponent) { return bits_as<double>(static_cast<u64>(exponent + 1023) << 52); }

INLINE int field_exponent(u32 bits, int fraction, int width)
{
    const int bias = (1 << (width - 1)) - 1;
    const int field = static_cast<int>(bits >> fraction & ((1u << width) - 1));
    const bool zero = (bits & ((1u << (fraction + width)) - 1)) == 0;
    return zero ? NO_EXPONENT : (field ? field : 1) - bias;
}

// Four numbers at a time, in whatever registers the processor has.
typedef double Doubles __attribute__((vector_size(32)));
typedef float Floats __attribute__((vector_size(16)));
typedef int Ints __attribute__((vector_size(16)));

INLINE Ints where(Ints condition, Ints yes, Ints no) { return (condition & yes) | (~condition & no); }

// The 16 operands that one element of D needs from A or from B.
struct Vector {
    u32 pairs[8];
    Doubles values[4];
    Ints exponents[4];
    bool finite;
};

template <Input INPUT>
INLINE void decode(Vector& vector)
{
    constexpr bool half = INPUT == Input::fp16;
    constexpr int fraction = half ? 10 : 7, bias = half ? 15 : 127;
    constexpr int infinity = half ? 0x7c00 : 0x7f80;
    // Widened to fp32, subnormals included, the bits of an fp16 number stand for a value 2^112 too small.
    constexpr float scale = half ? 0x1p112f : 1.0f;
    Ints special{};
    for (int k = 0; k < 4; ++k) {
        const int first = static_cast<int>(vector.pairs[2 * k]), second = static_cast<int>(vector.pairs[2 * k + 1]);
        const Ints bits = Ints{first, first >> 16, second, second >> 16} & 0xffff;
        const Ints magnitude = bits & 0x7fff;
        const Ints field = magnitude >> fraction;
        special |= magnitude >= infinity;
        const Ints exponent = where(field == 0, Ints{} + 1, field) - bias;
        vector.exponents[k] = where(magnitude == 0, Ints{} + NO_EXPONENT, exponent);
        const Floats value = bits_as<Floats>((bits & 0x8000) << 16 | magnitude << (23 - fraction)) * scale;
        vector.values[k] = __builtin_convertvector(value, Doubles);
    }
    vector.finite = !(special[0] | special[1] | special[2] | special[3]);
    if (!vector.finite && half) {
        for (int k = 0; k < 16; ++k) {
            vector.values[k / 4][k % 4] = from_fp16(static_cast<u16>(vector.pairs[k / 2] >> (16 * (k % 2))));
        }
    }
}

// Toward zero; infinity from 2^128 on.
INLINE float cut_to_float(double value)
{
    if (std::fabs(value) >= 0x1p128) {
        return value < 0 ? -HUGE_VALF : HUGE_VALF;
    }
    const float nearest = static_cast<float>(value);
    const bool outward = std::fabs(static_cast<double>(nearest)) > std::fabs(value);
    return bits_as<float>(bits_as<u32>(nearest) - outward);  // one step toward zero
}

// c + TERMS products from number 4 x `first` on, exact but for what the alignment cuts off.
template <int TERMS>
INLINE double fused_sum(const Vector& a, const Vector& b, int first, double c, int c_exponent, int zero_exponent)
{
    Ints largest_of_4 = Ints{} + (c_exponent == NO_EXPONENT ? zero_exponent : c_exponent);
    for (int k = first; k < first + TERMS / 4; ++k) {
        const Ints exponent = a.exponents[k] + b.exponents[k];
        const Ints counted = where(exponent < NO_EXPONENT / 2, Ints{} + zero_exponent, exponent);
        largest_of_4 = where(counted > largest_of_4, counted, largest_of_4);
    }
    int largest = largest_of_4[0];
    for (int i = 1; i < 4; ++i) {
        largest = largest_of_4[i] > largest ? largest_of_4[i] : largest;
    }
    // A term is less than 4 x 2^largest, so 16 of them with 25 fraction bits stay below 2^31.
    const double scale = power_of_two(tensor_core.fraction_bits - largest);
    Ints sums{};
    for (int k = first; k < first + TERMS / 4; ++k) {
        sums += __builtin_convertvector(a.values[k] * b.values[k] * scale, Ints);
    }
    const long long sum = sums[0] + sums[1] + sums[2] + sums[3] + static_cast<long long>(c * scale);
    return static_cast<double>(sum) * power_of_two(largest - tensor_core.fraction_bits);
}

// NaN and infinities travel as in IEEE 754.
double sum_of_specials(const Vector& a, const Vector& b, double c)
{
    double sum = c;
    for (int k = 0; k < 16; ++k) {
        sum += a.values[k / 4][k % 4] * b.values[k / 4][k % 4];
    }
    return sum;
}

template <int TERMS>
INLINE void add_products(const Vector& a, const Vector& b, float& c)
{
    if (!(a.finite && b.finite && std::isfinite(c))) {
        c = static_cast<float>(sum_of_specials(a, b, c));
        return;
    }
    for (int first = 0; first < 4; first += TERMS / 4) {
        const int exponent = field_exponent(bits_as<u32>(c), 23, 8);
        c = cut_to_float(fused_sum<TERMS>(a, b, first, c, exponent, tensor_core.zero_exponent_fp32));
    }
}

template <int TERMS>
INLINE void add_products(const Vector& a, const Vector& b, u16& c)
{
    if (!(a.finite && b.finite && std::isfinite(from_fp16(c)))) {
        c = to_fp16(sum_of_specials(a, b, from_fp16(c)));
        return;
    }
    for (int first = 0; first < 4; first += TERMS / 4) {
        const int exponent = field_exponent(c, 10, 5);
        c = to_fp16(fused_sum<TERMS>(a, b, first, from_fp16(c), exponent, tensor_core.zero_exponent_fp16));
    }
}

// Lane 4 g + t holds of D: rows g and g + 8, columns 2 t and 2 t + 1.
template <class Element, int TERMS>
INLINE void multiply_rows(MmaLane* const (&lanes)[32], const Vector (&rows)[16], const Vector (&columns)[8])
{
    for (int lane = 0; lane < 32; ++lane) {
        Element* d = static_cast<Element*>(lanes[lane]->d);
        for (int i = 0; i < 4; ++i) {
            add_products<TERMS>(rows[lane / 4 + i / 2 * 8], columns[lane % 4 * 2 + i % 2], d[i]);
        }
    }
}

}  // namespace

// Lane 4 g + t holds of A: rows g and g + 8, columns 2 t, 2 t + 1, and those 8 further; of B: the same rows k of column g.
FAST_VARIANTS void multiply_warp(MmaLane* const (&lanes)[32])
{
    Vector rows[16], columns[8];
    for (int lane = 0; lane < 32; ++lane) {
        const MmaLane& mine = *lanes[lane];
        const int g = lane / 4, t = lane % 4;
        rows[g].pairs[t] = mine.a[0];
        rows[g + 8].pairs[t] = mine.a[1];
        rows[g].pairs[t + 4] = mine.a[2];
        rows[g + 8].pairs[t + 4] = mine.a[3];
        columns[g].pairs[t] = mine.b[0];
        columns[g].pairs[t + 4] = mine.b[1];
    }
    const bool half = lanes[0]->input == Input::fp16;
    for (Vector& row : rows) {
        half ? decode<Input::fp16>(row) : decode<Input::bf16>(row);
    }
    for (Vector& column : columns) {
        half ? decode<Input::fp16>(column) : decode<Input::bf16>(column);
    }
    const bool by_16 = tensor_core.terms == 16;
    if (lanes[0]->fp16_accumulator) {
        by_16 ? multiply_rows<u16, 16>(lanes, rows, columns) : multiply_rows<u16, 8>(lanes, rows, columns);
    } else {
        by_16 ? multiply_rows<float, 16>(lanes, rows, columns) : multiply_rows<float, 8>(lanes, rows, columns);
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
